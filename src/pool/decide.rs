//! The guards, in their order, and the rows that they lead to.
//!
//! **Invariant:** the first guard that applies makes the step's one transition.

use super::reason::Reason;
use super::state::{Egress, Mode, Slot, Verdict};
use super::turn::Turn;
use std::time::Duration;

impl Turn<'_> {
    /// Decides, the WAN being up.
    pub(super) fn guards(&mut self) {
        if self.state.settle {
            return self.settle();
        }
        self.count();
        if self.state.mode.is_direct() {
            return self.direct();
        }
        if !self.state.proven {
            return self.refresh();
        }
        if self.serving().is_empty() {
            return self.none_serves();
        }
        self.state.none_serves_since = None;
        self.one_failed();
    }

    /// No slot serves: repair goes on for the time of grace, while there is reserve; then clients
    /// are given up to Direct.
    fn none_serves(&mut self) {
        let unknown = |slot: &Slot| slot.loaded().is_none() || slot.verdict == Verdict::Unknown;
        let loaded = self.state.slots.values().any(|slot| slot.loaded().is_some());
        if loaded && self.state.slots.values().all(unknown) {
            return;
        }
        let since = self.state.none_serves_since.get_or_insert_with(|| self.now.clone()).clone();
        let grace = Duration::from_secs(self.policy.params.direct_grace_sec);
        if !self.state.reserve().is_empty() && self.within(&since, grace) {
            if self.state.mode != Mode::LocalRepair {
                self.enter(Mode::LocalRepair);
            }
            self.repair();
            return;
        }
        self.give_up();
    }

    /// Clients go where the policy says that they go when nothing else is left.
    fn give_up(&mut self) {
        let params = &self.policy.params;
        let egress = match (params.direct_failopen_enabled, params.emergency_commit_enabled) {
            (true, true) => {
                self.say(Reason::ToDirect);
                Some(Egress::Direct)
            }
            (false, _) => {
                self.say(Reason::ToNone);
                Some(Egress::None)
            }
            (true, false) => {
                self.say(Reason::DirectHeld);
                None
            }
        };
        if let Some(egress) = egress {
            for client in self.policy.client_keys() {
                self.state.egress.insert(client, egress.clone());
            }
        }
        self.enter(Mode::DirectEmergency);
    }

    /// Clients are on Direct, and a set of slots is looked for that ends it.
    fn direct(&mut self) {
        if self.state.mode == Mode::DirectEmergency {
            self.state.refresh_asked = true;
            self.enter(Mode::BootstrapRecovery);
            return self.say(Reason::Recovering);
        }
        self.say(Reason::Recovering);
        self.refresh();
    }

    /// Some slot serves: what failed is brought back, then the pool is renewed if it is due.
    fn one_failed(&mut self) {
        if !self.stopped.is_empty() && self.state.mode == Mode::Normal {
            return self.enter(Mode::LocalRepair);
        }
        if self.state.mode == Mode::LocalRepair && !self.any_failed_or_empty() {
            return self.after_repair();
        }
        if self.repair() {
            return;
        }
        match self.state.mode {
            Mode::FullPoolRefresh => self.refresh(),
            Mode::Normal if self.state.refresh_asked => {
                self.say(Reason::RefreshAsked);
                self.enter(Mode::FullPoolRefresh);
                self.refresh();
            }
            Mode::DegradedPool | Mode::SlotExhausted => {
                if self.state.mode == Mode::SlotExhausted && !self.any_failed_or_empty() {
                    return self.enter(Mode::DegradedPool);
                }
                let (serving, slots) = (self.serving().len(), self.slots().len());
                self.say(Reason::FewerSlots { serving, slots });
                self.refresh();
            }
            // An empty slot of a state from before belongs to a repair.
            Mode::Normal if self.any_failed_or_empty() => self.enter(Mode::LocalRepair),
            Mode::Normal => {
                if self.reasons.is_empty() {
                    self.say(Reason::AllServe);
                }
            }
            Mode::LocalRepair | Mode::DirectEmergency | Mode::BootstrapRecovery => {}
        }
    }
}
