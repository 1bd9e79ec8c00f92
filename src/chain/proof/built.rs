//! What follows once tunnels were made.
//!
//! **Invariant:** what was made stays, whether it carries or not; where it does not, the search begins
//! in the same run.

use super::Proving;
use crate::chain::legs::{Break, Legs};
use crate::chain::reason::Reason;
use crate::chain::rebuild::{Field, Rebuild};
use crate::chain::state::ChainState;
use crate::chain::turn::hold;
use crate::chain::under_way::Purpose;
use crate::chain::{rows, settle};
use crate::machine::{Proof, Settled};

impl Proving<'_> {
    /// Tunnels were made. Those that carry are kept; where the path breaks, the search begins.
    pub(super) fn built(&mut self, legs: &Legs) -> Proof<ChainState> {
        let (policy, now) = (self.policy, self.now);
        let mut base = self.way.base.clone();
        for (place, (seat, stood)) in self.way.tries.iter().zip(&self.way.before).enumerate() {
            let hop = policy.hops.get(place).zip(base.hops.get_mut(place));
            if let Some((wanted, hop)) = hop.filter(|_| seat != stood) {
                hop.put(wanted, self.confirmed(seat), now);
            }
        }
        base.path.clone_from(&legs.path);
        if legs.passes() {
            rows::reopen(policy, &mut base, legs, now, &mut Vec::new());
            return self.settle(base, &self.way.tries, &[], Settled::Applied);
        }
        match self.is_offline(true) {
            Err(questions) => return Proof::Ask(questions),
            Ok(true) => {
                hold(&mut base);
                return self.settle(base, &self.way.tries, &[Reason::Offline], Settled::Applied);
            }
            Ok(false) => {}
        }
        rows::reopen(policy, &mut base, legs, now, &mut Vec::new());
        self.way.builds = true;
        self.way.before.clone_from(&self.way.tries);
        self.way.base = base.clone();
        let field = Field { policy, state: &base, now };
        let place = match legs.breaks(|place| field.is_gone(place, &self.way.tries)) {
            Break::At(place) => place,
            Break::Unknown(why) | Break::Outside(why) => {
                let why = Reason::Undetermined { why };
                return self.settle(base.clone(), &self.way.tries, &[why], Settled::Applied);
            }
            Break::Nowhere => {
                return self.settle(base.clone(), &self.way.tries, &[], Settled::Applied);
            }
        };
        let mut counted = base.clone();
        self.way.said.extend(settle::blame(policy, &mut counted, place, legs));
        let field = Field { policy, state: &counted, now };
        let carries = self.way.tries.get(place).map(String::as_str).unwrap_or_default();
        if !field.is_ripe(place, carries, 0) && !field.is_paused(place) {
            return self.settle(counted.clone(), &self.way.tries, &[], Settled::Applied);
        }
        let (rebuild, next) = Rebuild::begin(field, place, &self.way.tries);
        self.way.base = counted;
        self.way.purpose = Purpose::Rebuild(Box::new(rebuild));
        self.goes_on(next, legs, None)
    }
}
