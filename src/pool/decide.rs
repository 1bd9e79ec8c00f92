//! The guards, in their order, and the rows that they lead to.
//!
//! **Invariant:** the first guard that applies makes the step's one transition.

use super::reason::Reason;
use super::state::{Egress, Mode};
use super::turn::Turn;
use crate::names::Interface;
use std::time::Duration;

impl Turn<'_> {
    /// Decides, the WAN being up.
    pub(super) fn guards(&mut self) {
        if self.state.retired {
            return self.come_back();
        }
        if self.state.settle {
            return self.settle();
        }
        self.count();
        if self.has_leftover_tunnels() {
            // Their pairs of keys are up; the step takes them down and the next one goes on.
            return;
        }
        if self.grant_wish() {
            return;
        }
        if !self.state.proven {
            self.enter(Mode::FullPoolRefresh);
            return self.refresh();
        }
        if self.state.mode.is_direct() {
            return self.direct();
        }
        if self.serving().is_empty() {
            return self.none_serves();
        }
        self.one_serves();
    }

    /// Whether tunnels of ours stand on interfaces that are no slots any more, nor the standby's.
    fn has_leftover_tunnels(&self) -> bool {
        let tunnels = &self.sight.kernel.world.tunnels;
        let is_wished = |interface: &Interface| {
            self.slots().contains(interface) || self.policy.standby() == Some(interface)
        };
        self.state.proven && !tunnels.keys().all(is_wished)
    }

    /// After `down` and `resume` the same endpoints come back, each once it was proven again.
    fn come_back(&mut self) {
        self.state.retired = false;
        self.state.settle = false;
        self.say(Reason::ComesBack);
        self.loaded = self.slots().iter().filter(|slot| self.state.serves(slot)).cloned().collect();
        if self.state.mode.is_direct() {
            self.place_in_direct();
        }
    }

    /// No slot serves: repair goes on for the time of grace, while there is reserve; then clients
    /// are given up to Direct.
    fn none_serves(&mut self) {
        let reserve_left = !self.state.reserve().is_empty();
        let unknown = self.all_unknown();
        if unknown && !reserve_left {
            // Unknown never leads to Direct, and there is nothing to repair with.
            return;
        }
        let grace = Duration::from_secs(self.policy.params.direct_grace_sec);
        let since = self.state.none_serves_since.clone();
        let in_grace = since.is_none_or(|since| self.within(&since, grace));
        if reserve_left && (in_grace || unknown) {
            self.rescue();
        } else {
            self.give_up();
        }
    }

    /// Clients go where the policy says that they go when nothing else is left.
    fn give_up(&mut self) {
        self.place_in_direct();
        self.enter(Mode::DirectEmergency);
    }

    fn place_in_direct(&mut self) {
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
    }

    /// Clients are on Direct, and a set of slots is looked for that ends it.
    fn direct(&mut self) {
        self.say(Reason::Recovering);
        if self.state.mode == Mode::DirectEmergency {
            self.state.refresh_asked = Some(self.now.clone());
            return self.enter(Mode::BootstrapRecovery);
        }
        self.refresh();
    }

    /// Some slot serves: what failed is brought back, then the pool is renewed if it is due.
    fn one_serves(&mut self) {
        let incomplete = self.any_failed_or_empty();
        match self.state.mode {
            // A slot stopped, or one came with the policy: its clients move, and that is the step.
            Mode::Normal if incomplete => return self.enter(Mode::LocalRepair),
            Mode::LocalRepair if !incomplete => return self.after_repair(),
            Mode::Normal
            | Mode::LocalRepair
            | Mode::FullPoolRefresh
            | Mode::DegradedPool
            | Mode::SlotExhausted
            | Mode::DirectEmergency
            | Mode::BootstrapRecovery => {}
        }
        if self.repair() {
            return;
        }
        match self.state.mode {
            Mode::FullPoolRefresh => self.refresh(),
            Mode::Normal | Mode::DegradedPool | Mode::SlotExhausted
                if self.state.refresh_asked.is_some() =>
            {
                self.say(Reason::RefreshAsked);
                self.enter(Mode::FullPoolRefresh);
            }
            Mode::SlotExhausted if !incomplete => self.enter(Mode::DegradedPool),
            Mode::DegradedPool | Mode::SlotExhausted => {
                let (serving, slots) = (self.serving().len(), self.slots().len());
                if serving < slots {
                    self.say(Reason::FewerSlots { serving, slots });
                }
                self.refresh();
            }
            // Undecided retests hold up a refresh here.
            Mode::Normal | Mode::LocalRepair | Mode::DirectEmergency | Mode::BootstrapRecovery => {}
        }
    }
}
