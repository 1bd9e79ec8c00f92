//! What every policy of the folder shows, written where the site wants it.
//!
//! **Invariant:** publishing is a service: what goes wrong with it is said, and fails no step.

use super::kind::{self, Manner, Work};
use super::{Places, complain};
use crate::host::clock;
use crate::host::policies::{Found, last_good, site};
use crate::host::publish::publish;
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::machine::Machine;
use crate::names::PolicyName;
use crate::outcome::Exit;
use crate::publish::{Published, documents};
use crate::record::Record;
use crate::step::Order;
use crate::time::Moment;
use std::collections::BTreeMap;

/// What is shown is what the last step wrote, whoever stepped it.
const MANNER: Manner = Manner { adopt: true, now: true };

/// Publishes, where the site says so. A site that is not understood is an invalid policy.
pub(super) fn all(places: &Places) -> Exit {
    let folder = match site(&places.policy_dir) {
        Err(unusable) => {
            complain(&unusable.to_string());
            return Exit::Invalid;
        }
        Ok(found) => found.and_then(|(_, site)| site.publish_dir),
    };
    let Some(folder) = folder else { return Exit::Fine };
    let published = shown(places).and_then(|all| {
        let documents = documents(&all)?;
        publish(&folder, &documents)
    });
    if let Err(error) = published {
        complain(&format!("{error:#}"));
    }
    Exit::Fine
}

/// What all policies of the folder show.
fn shown(places: &Places) -> anyhow::Result<BTreeMap<PolicyName, Published>> {
    let (state_dir, now) = (places.state_dir(), clock::now()?);
    let mut all = BTreeMap::new();
    for found in places.find(&[]) {
        // What is wrong with a policy is said when it is stepped.
        let found: Option<Found> = found.or_else(|bad| last_good(&state_dir, &bad).ok_or(())).ok();
        let Some(found) = found else { continue };
        let shown = kind::with(&found, &state_dir, MANNER, Show { now: &now })?;
        all.insert(found.name, shown);
    }
    Ok(all)
}

struct Show<'a> {
    now: &'a Moment,
}

impl Work for Show<'_> {
    type Done = anyhow::Result<Published>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        let folder = Folder::new(order.state_dir, order.name.clone());
        match read_only::<Record<M::State>>(&folder, M::KIND.as_str()) {
            ReadOnly::Newer { found, known } => anyhow::bail!(
                "state of {} has format version {found}, newer than {known}: what is published stays as it is",
                order.name
            ),
            ReadOnly::Seen { loaded, .. } => {
                let record = loaded.body().cloned().unwrap_or_default();
                let (status, _) = M::status(order.name, order.policy, &record, self.now);
                Ok(M::published(&status))
            }
        }
    }
}
