//! Where the group is: what the policy names of it, and what the core's own files say of the rest.
//!
//! **Invariant:** what the policy names is never replaced by what was found; where more than one
//! thing could be meant, nothing is taken and all of them are told.

use super::Guard;
use super::reason::Reason;
use crate::clash::discover;
use crate::machine::Subject;
use crate::observation::{CoreFault, Observation, Outline, Question};
use crate::policy::GuardPolicy;
use crate::proxy::Proxy;
use crate::setting::{Control, Core};

/// Where the group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The core.
    pub(super) core: Core,
    /// The group in which a member is selected.
    pub(super) group: String,
    /// The member of it that chooses by itself.
    pub(super) automatic: String,
    /// The core's proxy, which goes out by the group.
    pub(super) proxy: Proxy,
}

/// What a guard is asked about, once it is known where its group is.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    /// What it is asked about.
    pub(super) subject: &'a Subject<'a, Guard>,
    /// Where its group is.
    pub(super) place: &'a Place,
}

/// Whether it is known where the group is.
pub(super) enum Sought {
    /// It is found in what this asks for.
    Ask(Question),
    /// It is there.
    Here(Box<Place>),
    /// It cannot be told.
    Trouble(Reason),
}

/// Finds where the group is.
pub(super) fn find(policy: &GuardPolicy, seen: &Observation) -> Sought {
    let (core, named) = (&policy.core, (&policy.group, &policy.automatic, policy.proxy));
    if let ((Some(group), Some(automatic), Some(proxy)), Control::Http(_) | Control::Unix(_)) =
        (named, &core.control)
    {
        let (group, automatic) = (group.clone(), automatic.clone());
        return Sought::Here(Box::new(Place { core: core.clone(), group, automatic, proxy }));
    }
    let Some(source) = &policy.source else {
        let why = "group, automatic or proxy is not named".to_owned();
        return Sought::Trouble(Reason::CoreUnusable { why });
    };
    let Some((_, found)) = seen.outlines().find(|(asked, _)| *asked == source) else {
        return Sought::Ask(Question::Outline(source.clone()));
    };
    match found {
        Ok(outline) => match of(policy, outline) {
            Ok(place) => Sought::Here(Box::new(place)),
            Err(why) => Sought::Trouble(Reason::CoreUnusable { why }),
        },
        Err(CoreFault::Down(why)) => Sought::Trouble(Reason::CoreDown { why: why.clone() }),
        Err(CoreFault::Refused(why) | CoreFault::Strange(why)) => {
            Sought::Trouble(Reason::CoreUnusable { why: why.clone() })
        }
    }
}

fn of(policy: &GuardPolicy, outline: &Outline) -> Result<Place, String> {
    let read_in = &outline.read_in;
    match (&policy.core.control, &outline.control) {
        (Control::Found(_), Err(why)) => return Err(format!("{read_in}: {why}")),
        (Control::Found(_), Ok(_)) | (Control::Http(_) | Control::Unix(_), _) => {}
    }
    let (group, automatic) =
        discover::groups(outline, policy.group.as_deref(), policy.automatic.as_deref())?;
    let found = || outline.proxies.first().copied();
    let proxy = policy.proxy.or_else(found).ok_or_else(|| {
        let others = match outline.other_proxies.as_slice() {
            [] => String::new(),
            some => format!(" ({})", some.join("; ")),
        };
        format!(
            "{read_in} has no proxy on loopback that can be used{others}: add one of type mixed, or name proxy in the policy"
        )
    })?;
    Ok(Place { core: policy.core.clone(), group, automatic, proxy })
}
