//! What a selector switches: what it shows, and what it is told.
//!
//! **Invariant:** the machine knows no driver; whatever a driver makes is named in what it gives.

pub(super) mod clash;
pub(super) mod route;

use super::activity::Measure;
use super::sight::Health;
use super::state::{Chosen, SelectorState};
use super::turn::Goal;
use crate::kernel::World;
use crate::machine::Cut;
use crate::observation::Question;
use crate::policy::selector::Channel;
use crate::setting::{Edit, Setting};
use std::collections::BTreeMap;

/// What makes a state true.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Made {
    /// Our own objects in the kernel.
    pub(super) world: World,
    /// What is written where a core keeps it.
    pub(super) settings: BTreeMap<Setting, Edit>,
    /// The flows that it ends.
    pub(super) cuts: Vec<Cut>,
}

/// Something that is switched, as this run sees it.
pub(super) trait Drive {
    /// How a channel answered the `turn`-th time. `None`: it was not asked yet.
    fn health(&self, channel: Channel, turn: u32) -> Option<Health>;

    /// What is looked at once more after the channels were asked; `None`: it was.
    fn look_after(&self) -> Option<Question>;

    /// What is to be known before it is clear whose choice stands there. `None`: it is clear.
    fn look_closer(&self, known: Option<&SelectorState>) -> Option<Question>;

    /// What new connections take.
    fn chosen(&self) -> Chosen;

    /// What a person wants of a target.
    ///
    /// # Errors
    /// Why it cannot be chosen.
    fn choose(&self, target: &str) -> Result<Chosen, &'static str>;

    /// What somebody has chosen since.
    fn persons_choice(&self, state: &SelectorState) -> Option<Chosen>;

    /// Our choice, when it was forgotten.
    fn lost_choice(&self, state: &SelectorState) -> Option<String>;

    /// Remembers what stands there as read back.
    fn confirm(&self, state: &mut SelectorState);

    /// The target that a channel is.
    fn target(&self, channel: Channel) -> String;

    /// How many requests of a check are received on the channel in use at most.
    fn requests(&self) -> usize;

    /// What was received on the channel in use before and after the channels were asked.
    fn measures(&self, state: &SelectorState) -> Option<(Measure, Measure)>;

    /// Bytes in a second between the two samples right before a switch.
    fn last_sample(&self, state: &SelectorState) -> Option<u64>;

    /// What is still to be asked for those two samples.
    fn next_sample(&self, state: &SelectorState) -> Option<Vec<Question>>;

    /// What makes a state true, with the switch that led to it.
    fn make(&self, state: &mut SelectorState, goal: Option<&Goal>) -> Made;

    /// What a remembered state calls for in the kernel. `None`: nothing there is its own.
    fn standing(&self, state: &SelectorState) -> Option<World>;
}

/// Bytes in a second between two measures.
fn rate(from: &Measure, to: &Measure) -> Option<u64> {
    let span_ms = u64::try_from(to.at.since(&from.at).as_millis()).ok()?;
    to.since(from)?.saturating_mul(1_000).checked_div(span_ms)
}
