//! The rows of the machine for one host name, and who is taken into its record.
//!
//! **Invariant:** one row a step; a present fallback gives way to nobody but the native while it
//! serves; a record is never emptied.

use super::name::NodeName;
use super::reason::Reason;
use super::seat::{Seat, why_of, words};
use super::state::{Member, Mode, Node, Verdict};
use std::time::Duration;

impl Seat<'_> {
    /// The first row that applies.
    pub(super) fn rows(&mut self) {
        if self.host.native != self.wanted.native {
            return self.take_native();
        }
        match self.host.mode {
            Mode::Native | Mode::NativeFailing => self.on_native(),
            Mode::Fallback | Mode::NativeRecovering | Mode::NativeQuarantined => self.away(),
            Mode::Stranded => self.stranded(),
        }
        if self.publish.is_none() && self.host.mode != Mode::Stranded {
            self.tend();
        }
    }

    /// The policy says another native: what was counted against the old one is void.
    fn take_native(&mut self) {
        self.host.native.clone_from(&self.wanted.native);
        self.host.left.clear();
        self.host.quarantined = None;
        let native = self.wanted.native.clone();
        self.say(Reason::NativeChanged { host: self.name.clone(), native });
        if self.host.is_native() {
            self.host.stay = None;
            self.enter(Mode::Native);
        } else {
            self.host.stay = Some(self.now.clone());
            self.enter(Mode::Fallback);
        }
    }

    /// The record holds the native.
    fn on_native(&mut self) {
        let native = self.wanted.native.clone();
        if self.is_lost(&native) {
            let others = self.others(self.wanted.records);
            return if others.is_empty() { self.strand() } else { self.leave_native(&others) };
        }
        match self.verdict(&native) {
            Verdict::Failed => {
                self.enter(Mode::NativeFailing);
                self.say_failed(&native);
            }
            Verdict::Passed => {
                if self.host.mode == Mode::NativeFailing {
                    self.say(Reason::FalseAlarm { host: self.name.clone() });
                }
                self.enter(Mode::Native);
            }
            Verdict::Unknown => self.say_unknown(&native),
        }
    }

    /// The record holds fallbacks.
    fn away(&mut self) {
        let published: Vec<NodeName> = self.host.published.keys().cloned().collect();
        if published.iter().all(|name| self.is_lost(name)) {
            return self.forced();
        }
        for name in &published {
            if self.verdict(name) == Verdict::Failed {
                self.say_failed(name);
            }
        }
        let verdict = self.verdict(&self.wanted.native);
        let host = self.name.clone();
        match (self.host.mode, verdict) {
            (Mode::NativeQuarantined, verdict) => {
                if self.in_quarantine() {
                    return;
                }
                self.host.quarantined = None;
                self.say(Reason::QuarantineOver { host });
                let passes = verdict == Verdict::Passed;
                self.enter(if passes { Mode::NativeRecovering } else { Mode::Fallback });
            }
            (Mode::NativeRecovering, Verdict::Failed) => {
                self.say(Reason::FailedAgain { host });
                self.enter(Mode::Fallback);
            }
            (Mode::NativeRecovering, Verdict::Passed)
                if self.is_fit(&self.wanted.native) && self.stay_left_sec() == 0 =>
            {
                self.go_home();
            }
            (Mode::NativeRecovering | Mode::Fallback, Verdict::Passed) => {
                let node = self.nodes.get(&self.wanted.native);
                let passes = node.map_or(0, |node| node.checks.passes);
                let left_sec = self.stay_left_sec();
                self.say(Reason::Recovering { host, passes, left_sec });
                self.enter(Mode::NativeRecovering);
            }
            (Mode::NativeRecovering | Mode::Fallback, Verdict::Unknown) => {
                self.say_unknown(&self.wanted.native.clone());
            }
            (Mode::Fallback, Verdict::Failed)
            | (Mode::Native | Mode::NativeFailing | Mode::Stranded, _) => {}
        }
    }

    /// All that the record holds is lost.
    fn forced(&mut self) {
        let others = self.others(self.wanted.records);
        let native_fits = self.is_fit(&self.wanted.native);
        if native_fits && (!self.in_quarantine() || others.is_empty()) {
            return self.go_home();
        }
        if others.is_empty() {
            return self.strand();
        }
        if self.host.is_native() {
            return self.leave_native(&others);
        }
        self.enter(self.away_mode());
        self.host.stay = Some(self.now.clone());
        self.move_away(&others);
    }

    /// Nobody was eligible.
    fn stranded(&mut self) {
        let published: Vec<NodeName> = self.host.published.keys().cloned().collect();
        if published.iter().any(|name| self.is_fit(name)) {
            self.say(Reason::UpAgain { host: self.name.clone(), at: self.host.names() });
            let is_native = self.host.is_native();
            return self.enter(if is_native { Mode::Native } else { self.away_mode() });
        }
        self.forced();
    }

    fn strand(&mut self) {
        let at = match self.host.names() {
            names if names.is_empty() => words(&self.host.ours),
            names => names,
        };
        self.say(Reason::Stranded { host: self.name.clone(), at });
        self.enter(Mode::Stranded);
    }

    /// The record leaves the native, which is counted.
    fn leave_native(&mut self, others: &[NodeName]) {
        let params = &self.policy.params;
        let (sec, limit) = (params.quarantine_sec, params.flap_limit);
        self.host.left.push(self.now.clone());
        self.host.stay = Some(self.now.clone());
        let times = self.host.left.len();
        if times >= limit || self.in_quarantine() {
            self.host.quarantined = Some(self.now.clone());
            self.say(Reason::Quarantined { host: self.name.clone(), times, sec });
        }
        self.enter(self.away_mode());
        self.move_away(others);
    }

    fn move_away(&mut self, names: &[NodeName]) {
        let from = match self.host.names() {
            names if names.is_empty() => words(&self.host.ours),
            names => names,
        };
        let lost = self.host.published.keys().find(|name| self.is_lost(name));
        let why = lost.map_or_else(
            || "nothing of it serves".to_owned(),
            |name| format!("{name} is lost: {}", self.lost_why(name)),
        );
        self.note_leavers(names);
        self.put(names, &why);
        let (host, to) = (self.name.clone(), self.host.names());
        self.say(Reason::MovedAway { host, from, to, why });
    }

    /// The record returns to the native.
    fn go_home(&mut self) {
        let from = match self.host.names() {
            names if names.is_empty() => words(&self.host.ours),
            names => names,
        };
        let names = self.with_native();
        self.note_leavers(&names);
        self.put(&names, "its native serves again");
        self.host.stay = None;
        self.enter(Mode::Native);
        self.say(Reason::Returned { host: self.name.clone(), from });
    }

    /// Whether the record holds its native is settled; who else is in it, and under which addresses,
    /// may change all the same. That is no transition.
    fn tend(&mut self) {
        let is_native = self.host.is_native();
        if let Some(names) = self.turns(is_native) {
            let before = self.host.published.clone();
            self.put(&names, "others took their turn");
            if before != self.host.published {
                self.say(Reason::Rotated { host: self.name.clone(), to: self.host.names() });
            }
            return;
        }
        let names = if is_native { self.with_native() } else { self.others(self.wanted.records) };
        if names.is_empty() {
            return;
        }
        let before = self.host.clone();
        let why = self.set_why(&names);
        self.note_leavers(&names);
        self.put(&names, &why);
        let (old, new) = (&before.published, &self.host.published);
        if old == new {
            self.publish = None;
            self.host = before;
            return;
        }
        let host = self.name.clone();
        let reason = if old.keys().eq(new.keys()) {
            Reason::Followed { host, nodes: self.host.names() }
        } else {
            Reason::SetChanged { host, from: before.names(), to: self.host.names(), why }
        };
        self.say(reason);
    }

    /// Why these are to be in the record in place of those that are.
    fn set_why(&self, names: &[NodeName]) -> String {
        let mut gone = self.host.published.keys().filter(|name| !names.contains(name));
        let lost = gone.clone().find(|name| self.is_lost(name));
        match (lost, gone.next()) {
            (Some(name), _) => format!("{name} is lost: {}", self.lost_why(name)),
            (None, Some(name)) => format!("there is no place for {name} any more"),
            (None, None) => "there was room".to_owned(),
        }
    }

    /// Who takes the next turn, where it is time and everybody was heard of. Turns go by weight: who
    /// waits longest in proportion to it is taken (the smooth weighted round robin of nginx).
    fn turns(&mut self, is_native: bool) -> Option<Vec<NodeName>> {
        let every = Duration::from_secs(self.wanted.rotate_sec?);
        if self.host.rotated.as_ref().is_some_and(|at| self.now.since(at) < every) {
            return None;
        }
        let order = self.order();
        if order.iter().any(|name| self.heard(name) == Verdict::Unknown) {
            return None;
        }
        let places = self.wanted.records - usize::from(is_native);
        let fresh: Vec<NodeName> = order
            .into_iter()
            .skip(1)
            .filter(|name| self.is_fit(name) && !self.is_passed_over(name))
            .collect();
        if fresh.len() <= places || places == 0 {
            return None;
        }
        let weight =
            |name: &NodeName| self.policy.nodes.get(name).map_or(1, |node| i64::from(node.weight));
        let mut left = fresh;
        let mut names: Vec<NodeName> = Vec::new();
        while names.len() < places {
            let total: i64 = left.iter().map(weight).sum();
            for name in &left {
                self.host.members.entry(name.clone()).or_default().credit += weight(name);
            }
            let credit = |name: &NodeName| self.host.members.get(name).map_or(0, |m| m.credit);
            // Of equals the first one, as the policy names them.
            let best = left.iter().rev().max_by_key(|name| credit(name))?.clone();
            self.host.members.entry(best.clone()).or_default().credit -= total;
            left.retain(|name| *name != best);
            names.push(best);
        }
        names.extend(is_native.then(|| self.wanted.native.clone()));
        Some(names)
    }

    /// The native and as many others as have room beside it.
    pub(super) fn with_native(&self) -> Vec<NodeName> {
        let native = std::iter::once(self.wanted.native.clone());
        native.chain(self.others(self.wanted.records.saturating_sub(1))).collect()
    }

    /// At most `places` fallbacks: those that are there and not lost, then others that serve, as they
    /// are preferred; who is passed over is taken where there is nobody else.
    pub(super) fn others(&self, places: usize) -> Vec<NodeName> {
        let order = self.order();
        let others = || order.iter().skip(1);
        let present = |name: &NodeName| self.host.published.contains_key(name);
        let kept = others().filter(|name| present(name) && !self.is_lost(name));
        let fresh = others()
            .filter(|name| !present(name) && self.is_fit(name) && !self.is_passed_over(name));
        let names: Vec<NodeName> = kept.chain(fresh).take(places).cloned().collect();
        if !names.is_empty() || self.host.is_native() && !self.is_lost(&self.wanted.native) {
            return names;
        }
        others().filter(|name| self.is_fit(name)).take(places).cloned().collect()
    }

    /// Notes who leaves a record of several because it failed: it comes back after its stay.
    fn note_leavers(&mut self, names: &[NodeName]) {
        if self.wanted.records == 1 {
            return;
        }
        let limit = self.policy.params.flap_limit;
        let leaves = |name: &&NodeName| !names.contains(name) && **name != self.wanted.native;
        let gone: Vec<NodeName> = self
            .host
            .published
            .keys()
            .filter(leaves)
            .filter(|name| self.is_lost(name))
            .cloned()
            .collect();
        for name in gone {
            let member: &mut Member = self.host.members.entry(name).or_default();
            member.left.push(self.now.clone());
            if member.left.len() >= limit {
                member.quarantined = Some(self.now.clone());
            }
        }
    }

    /// Whether a fallback of a record of several is passed over: it left a short while ago, or too
    /// often.
    fn is_passed_over(&self, name: &NodeName) -> bool {
        let stay = Duration::from_secs(self.policy.params.minimum_stay_sec);
        self.host.members.get(name).is_some_and(|member| {
            let cools = member.left.last().is_some_and(|at| self.now.since(at) < stay);
            self.wanted.records > 1 && (cools || member.quarantined.is_some())
        })
    }

    fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.get(name).filter(|_| self.order().contains(name))
    }

    /// What a node's own check showed in this round.
    fn verdict(&self, name: &NodeName) -> Verdict {
        self.nodes.get(name).map_or(Verdict::Unknown, |node| node.checks.verdict)
    }

    /// What this round showed of a node for this host.
    fn heard(&self, name: &NodeName) -> Verdict {
        let serves = self.host.members.get(name).and_then(|member| member.serves.as_ref());
        let serves = serves.map_or(Verdict::Passed, |serves| serves.verdict);
        match (self.verdict(name), serves) {
            (Verdict::Passed, Verdict::Passed) => Verdict::Passed,
            (Verdict::Failed, _) | (Verdict::Passed | Verdict::Unknown, Verdict::Failed) => {
                Verdict::Failed
            }
            (Verdict::Unknown, _) | (Verdict::Passed, Verdict::Unknown) => Verdict::Unknown,
        }
    }

    /// Whether a node may be put into the record: it is up, and has just served as the native would.
    pub(super) fn is_fit(&self, name: &NodeName) -> bool {
        let up = self.node(name).is_some_and(|node| node.up);
        up && self.heard(name) == Verdict::Passed
    }

    /// Whether a node in the record is of no use there any more: it is down, it is no node of this
    /// host any more, or it has stopped to serve in the native's place.
    pub(super) fn is_lost(&self, name: &NodeName) -> bool {
        let down = self.node(name).is_none_or(|node| !node.up);
        let fall = self.policy.params.fall;
        let serves = self.host.members.get(name).and_then(|member| member.serves.as_ref());
        down || serves.is_some_and(|serves| serves.failures >= fall)
    }

    fn lost_why(&self, name: &NodeName) -> String {
        let serves = self.host.members.get(name).and_then(|member| member.serves.as_ref());
        match (self.node(name), serves) {
            (None, _) => "it is no node of this host any more".to_owned(),
            (Some(node), Some(serves)) if node.up => serves.why.clone(),
            (Some(node), _) => why_of(node),
        }
    }

    fn say_unknown(&mut self, name: &NodeName) {
        let why = self.nodes.get(name).map(|node| node.checks.why.clone()).unwrap_or_default();
        self.say(Reason::CheckUnknown { host: self.name.clone(), node: name.clone(), why });
    }

    fn say_failed(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get(name) else { return };
        let (failures, why) = (node.checks.failures, why_of(node));
        let (host, node) = (self.name.clone(), name.clone());
        self.say(Reason::CheckFailed { host, node, failures, why });
    }
}
