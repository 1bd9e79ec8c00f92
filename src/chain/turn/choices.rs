//! What a person wants of a hop, by `switch` or in the core itself, and what a restart has forgotten.
//!
//! **Invariant:** a person's choice stands, whatever becomes of the path.

use super::{Step, Turn};
use crate::chain::drive::Drive;
use crate::chain::reason::Reason;
use crate::chain::state::{HopPause, HopState, PauseWhy};
use crate::chain::turn::hold;
use crate::chain::under_way::Purpose;
use crate::clash::choice::{Choice, Confirmed};
use crate::policy::chain::Hop;
use crate::time::Moment;

impl Step<'_> {
    /// Carries a person's choice out.
    pub(super) fn wish(&mut self) -> Option<Turn> {
        let wish = self.state.wish.clone()?;
        let place = self.policy().hops.iter().position(|hop| hop.name == wish.hop)?;
        let node = self.policy().hops.get(place)?.node(&wish.node)?.clone();
        let mut tries = self.drive.seats.clone();
        if let Some(seat) = tries.get_mut(place) {
            seat.clone_from(&node.member);
        }
        self.state.wish = None;
        if let Some(why) =
            self.state.hindrance(self.policy(), &self.drive.seats, place, &node.member)
        {
            let (hop, node) = (wish.hop, wish.node);
            return Some(self.because(Reason::Hindered { hop, node, why }));
        }
        Some(self.tries(tries, Purpose::Switch { hop: place }))
    }

    /// Whose choices stand. Some: that is all that this step does.
    pub(super) fn choices(&mut self) -> Option<Turn> {
        let now = self.seen.started.clone();
        let mut tries = self.drive.seats.clone();
        let mut lost = Vec::new();
        for place in 0..tries.len() {
            let (Some(hop), Some(wanted), Some(seat)) = (
                self.state.hops.get_mut(place),
                self.subject.policy.hops.get(place),
                tries.get_mut(place),
            ) else {
                continue;
            };
            let confirmed = self.drive.confirmed(seat);
            let is_gone = !self.drive.can_be(place, &hop.confirmed.member);
            match self.drive.choice(hop, seat) {
                Choice::Ours => hop.confirmed = confirmed,
                Choice::Unclear if self.may_ask && !self.drive.has_config() => {
                    return Some(Turn::Ask(Drive::config(self.subject)));
                }
                Choice::Unclear => return Some(self.because(Reason::NoTime)),
                // Nobody chooses because a member has gone: what is left is looked at.
                Choice::Lost | Choice::Persons(_) if is_gone => {
                    let member = hop.confirmed.member.clone();
                    self.reasons.push(Reason::NodeGone { hop: hop.name.clone(), member });
                    let mode = hop.mode;
                    hop.put(wanted, confirmed, &now);
                    if mode.is_down() {
                        hop.enter(mode, &now);
                    }
                }
                Choice::Lost => {
                    let member = hop.confirmed.member.clone();
                    lost.push(Reason::ChoiceLost { hop: hop.name.clone(), member: member.clone() });
                    *seat = member;
                }
                Choice::Persons(member) => {
                    take_over(hop, wanted, confirmed, &now);
                    self.reasons.push(Reason::PersonsChoice { hop: hop.name.clone(), member });
                }
            }
        }
        if lost.is_empty() {
            return None;
        }
        self.reasons.extend(lost);
        if self.subject.paused {
            return Some(self.because(Reason::LostWaits));
        }
        hold(&mut self.state);
        Some(self.tries(tries, Purpose::Again))
    }
}

/// A person has chosen what carries in a hop.
pub(in crate::chain) fn take_over(
    hop: &mut HopState,
    wanted: &Hop,
    confirmed: Confirmed,
    now: &Moment,
) {
    hop.put(wanted, confirmed, now);
    hop.paused = Some(HopPause { why: PauseWhy::Chosen, at: now.clone() });
}
