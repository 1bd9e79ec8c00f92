//! The one match over kinds: from a policy to the machine that runs it.
//!
//! **Invariant:** a command is written once, for any machine.

use crate::bundle::{self, Bundle, Replayed};
use crate::chain::Chain;
use crate::dns::Dns;
use crate::graph::Edge;
use crate::guard::Guard;
use crate::host::policies::Found;
use crate::machine::Machine;
use crate::policy::{Kind, Policy};
use crate::pool::Pool;
use crate::selector::Selector;
use crate::step::Order;
use std::path::Path;

/// What is done with a policy of any kind.
pub(super) trait Work {
    /// What comes of it.
    type Done;

    /// Does it.
    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done;
}

/// How a policy is taken up.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// Whether its file may have moved since the last run.
    pub(super) adopt: bool,
    /// Whether it is stepped although it is not due.
    pub(super) now: bool,
}

/// Does `work` with the machine of a policy's kind.
pub(super) fn with<W: Work>(found: &Found, state_dir: &Path, manner: Manner, work: W) -> W::Done {
    match &found.policy {
        Policy::Pool(policy) => work.with(&order::<Pool>(found, policy, state_dir, manner)),
        Policy::Selector(policy) => work.with(&order::<Selector>(found, policy, state_dir, manner)),
        Policy::Guard(policy) => work.with(&order::<Guard>(found, policy, state_dir, manner)),
        Policy::Dns(policy) => work.with(&order::<Dns>(found, policy, state_dir, manner)),
        Policy::Chain(policy) => work.with(&order::<Chain>(found, policy, state_dir, manner)),
    }
}

/// The transitions of a kind.
pub(super) fn edges(kind: Kind) -> Vec<Edge> {
    match kind {
        Kind::Pool => Pool::edges(),
        Kind::Selector => Selector::edges(),
        Kind::Guard => Guard::edges(),
        Kind::Dns => Dns::edges(),
        Kind::Chain => Chain::edges(),
    }
}

/// Decides again with the machine of a policy's kind.
pub(super) fn replay(policy: &Policy, bundle: &Bundle) -> Result<Replayed, String> {
    match policy {
        Policy::Pool(policy) => bundle::replay::<Pool>(policy, bundle),
        Policy::Selector(policy) => bundle::replay::<Selector>(policy, bundle),
        Policy::Guard(policy) => bundle::replay::<Guard>(policy, bundle),
        Policy::Dns(policy) => bundle::replay::<Dns>(policy, bundle),
        Policy::Chain(policy) => bundle::replay::<Chain>(policy, bundle),
    }
}

fn order<'a, M: Machine>(
    found: &'a Found,
    policy: &'a M::Policy,
    state_dir: &'a Path,
    manner: Manner,
) -> Order<'a, M> {
    Order {
        name: &found.name,
        path: &found.path,
        policy,
        state_dir,
        adopt: manner.adopt,
        now: manner.now,
    }
}
