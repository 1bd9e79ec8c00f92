//! What a run is trying, from one decision of it to the next.
//!
//! **Invariant:** it lives within one run and is never written down: what a run that died was trying
//! is told by its journal.

use super::combos::Combos;
use super::name::NodeName;
use super::reason::Reason;
use super::rebuild::Rebuild;
use super::state::ChainState;
use crate::kernel::World;
use crate::observation::Life;
use crate::plan::Check;

/// What stands, by hop in the order of the policy, as the driver calls it.
pub type Seats = Vec<String>;

/// What is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// What is remembered if nothing of it comes true, all counting done.
    pub base: ChainState,
    /// What stands now, as far as it was read back.
    pub stands: Seats,
    /// What stood before.
    pub before: Seats,
    /// What is put in place by the present decision.
    pub tries: Seats,
    /// The driver's run in which that was seen.
    pub life: Life,
    /// What has to stand in the kernel first, in order; each is taken away once it does.
    pub stages: Vec<World>,
    /// Whether tunnels were made that were not there.
    pub builds: bool,
    /// What the kernel must say of clients once it is in place.
    pub checks: Vec<Check>,
    /// What was said before anything was put in place.
    pub said: Vec<Reason>,
    /// What for.
    pub purpose: Purpose,
}

/// What something is put in place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Choices were lost in a restart.
    Again,
    /// Tunnels that are not there, or not as they should be.
    Build,
    /// A person wants it.
    Switch {
        /// The place of the hop.
        hop: usize,
    },
    /// Services of a gost try again more or less often than they should.
    Retries(Vec<Retries>),
    /// The preferred node carries again if the whole path passes.
    Return(Change),
    /// The next node's turn has come.
    Rotation(Change),
    /// A node was faster for long enough.
    Faster(Change),
    /// A hop is broken.
    Rebuild(Box<Rebuild>),
    /// The path is broken and nobody can say where.
    Combos(Box<Combos>),
}

/// How often a service of a gost tries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The service.
    pub service: String,
    /// How often it does.
    pub from: u64,
    /// How often it should.
    pub to: u64,
}

/// One node in place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The place of the hop.
    pub hop: usize,
    /// The node that goes.
    pub from: Option<NodeName>,
    /// The node that comes.
    pub to: NodeName,
}
