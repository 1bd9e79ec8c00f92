//! The kernel looked at again after a change, and what is remembered of it as ours.
//!
//! **Invariant:** what a policy owns is what was seen there once a world was proven, and what a setting held
//! before its first change is kept until it is given back.

use super::Run;
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::kernel::read::sha256;
use crate::machine::{Machine, Owned};
use crate::names::Interface;
use crate::observation::Realm;
use crate::record::LoadedNft;
use std::collections::BTreeSet;

impl<M: Machine> Run<'_, M> {
    /// Looks at the kernel again, for the objects of a wished world too.
    pub(super) fn look(
        &self,
        desired: &World,
        makes: &BTreeSet<Interface>,
    ) -> anyhow::Result<World> {
        // What was made before the policy was edited is still there to be removed.
        if M::realms(self.order.policy).is_empty() && self.record.owned.realms.is_empty() {
            return Ok(World::default());
        }
        let mut scope = M::scope(&self.subject(), 1);
        scope.owned.extend(makes.iter().cloned());
        scope.interfaces.extend(makes.iter().cloned());
        scope.sysctls.extend(desired.sysctls.keys().cloned());
        for (interface, tunnel) in &desired.tunnels {
            if let (Some(config), Some(ends)) = (&tunnel.config, &tunnel.ends) {
                scope.expected.insert(interface.clone(), (config.clone(), ends.into()));
            }
        }
        scope.bound.clear();
        Ok(crate::host::look::kernel(&scope)?.world)
    }

    pub(super) fn no_difference(&self, actual: &World, desired: &World) -> Result<(), String> {
        let means = M::means(self.order.policy);
        match diff(actual, desired, &means).first() {
            None => Ok(()),
            Some(step) => {
                Err(format!("the kernel is not as wished: {} is still due", step.action.command()))
            }
        }
    }
}

/// What is remembered of a loaded nft table.
pub(super) fn loaded_nft(desired: &World, actual: &World) -> Option<LoadedNft> {
    let listing = actual.nft.as_ref()?.listing.clone()?;
    Some(LoadedNft { text: sha256(desired.nft.as_ref()?.text.as_bytes()), listing })
}

/// What the policy owns once a world is proven.
pub(super) fn owned_after(
    before: &Owned,
    desired: &World,
    backup: &World,
    realms: BTreeSet<Realm>,
) -> Owned {
    let interfaces: BTreeSet<Interface> = desired.tunnels.keys().cloned().collect();
    let ours = |path: &str| {
        interfaces.iter().chain(&before.interfaces).any(|name| path.contains(&format!("/{name}/")))
    };
    let sysctls = desired
        .sysctls
        .keys()
        .filter(|path| !ours(path))
        .filter_map(|path| {
            let original = before.sysctls.get(path).or_else(|| backup.sysctls.get(path))?;
            Some((path.clone(), original.clone()))
        })
        .collect();
    // Once a world is proven nothing is left under other numbers.
    Owned { interfaces, sysctls, realms }
}
