//! A whole step of all host names, as one decision, and what became of it.
//!
//! **Invariant:** a turn is made of policy, state and what was seen, and of nothing else, so that
//! what it decided can be made again when its writes are over.

use super::name::HostName;
use super::reason::Reason;
use super::record::{RecordSet, details};
use super::round::{self, Round};
use super::seat::{Seat, words};
use super::state::{DnsState, Host, HostPause, Leave, Mode, PauseWhy};
use super::{Dns, ask};
use crate::machine::{Decision, Future, Settled, Subject};
use crate::observation::{NodesReading, Observation};
use crate::setting::{Edit, Setting, Value, Written};
use crate::time::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// A step.
pub(super) struct Turn {
    from: Option<String>,
    now: Moment,
    /// What is remembered if every write comes true.
    state: DnsState,
    /// Each host whose record is written, as it is remembered if that is refused.
    undone: BTreeMap<HostName, Host>,
    moves: BTreeMap<HostName, (Setting, Edit)>,
    reasons: Vec<(Option<HostName>, Reason)>,
}

impl Turn {
    /// Plays a step.
    pub(super) fn play(subject: &Subject<'_, Dns>, seen: &Observation) -> Self {
        let policy = subject.policy;
        let last = seen.pages(&ask::asker()).into_iter().map(|(_, reading)| &reading.at).max();
        let now = last.unwrap_or(&seen.started).clone();
        let mut state = subject.state.cloned().unwrap_or_else(|| DnsState::new(&now));
        state.addresses = ask::addresses(policy, &state, seen);
        let from = subject.state.map(|state| state.stands.clone());
        let mut turn = Self {
            from,
            now,
            state,
            undone: BTreeMap::new(),
            moves: BTreeMap::new(),
            reasons: Vec::new(),
        };
        match round::round(seen) {
            Round::Discarded(reason) => turn.say(reason),
            Round::Counts(nodes) => turn.counted(subject, seen, nodes),
        }
        turn.state.restate(&turn.now);
        turn
    }

    fn say(&mut self, reason: Reason) {
        self.reasons.push((None, reason));
    }

    /// A round that no reference speaks against.
    fn counted(&mut self, subject: &Subject<'_, Dns>, seen: &Observation, nodes: &NodesReading) {
        let policy = subject.policy;
        round::keep_nodes(policy, &mut self.state, &self.now);
        match round::is_believed(policy, &mut self.state, nodes) {
            Err(reason) => return self.say(reason),
            Ok(reason) => self.reasons.extend(reason.map(|reason| (None, reason))),
        }
        round::count(policy, &mut self.state, nodes, &self.now);
        if subject.paused {
            return;
        }
        for (name, wanted) in &policy.hosts {
            let Some(setting) = ask::record(policy, name) else { continue };
            let record = match seen.setting(&setting) {
                Some(Ok(Value::Records(records))) => Ok(records),
                Some(Ok(Value::Member(_) | Value::Count(_))) | None => Err("it was not asked"),
                Some(Err(why)) => Err(why.as_str()),
            };
            let known = self.state.hosts.remove(name);
            if known.is_none() && record.is_err() {
                let why = record.err().unwrap_or_default().to_owned();
                let reason = Reason::Unreadable { host: name.clone(), why };
                self.reasons.push((Some(name.clone()), reason));
                continue;
            }
            let mut seat = Seat {
                policy,
                name,
                wanted,
                nodes: &self.state.nodes,
                now: &self.now,
                found: record.ok(),
                host: known.unwrap_or_else(|| Host::new(&wanted.native, &self.now)),
                publish: None,
                reasons: Vec::new(),
            };
            seat.count(nodes);
            let wish = self.state.wish.as_ref().filter(|wish| wish.host == *name);
            let (seated, granted) = seat.decide(record, wish.map(|wish| (&wish.node, wish.force)));
            if granted && wish.is_some() {
                self.state.wish = None;
            }
            let said = seated.reasons.into_iter().map(|reason| (Some(name.clone()), reason));
            self.reasons.extend(said);
            if let Some(edit) = seated.edit {
                self.undone.insert(name.clone(), seated.undone);
                self.moves.insert(name.clone(), (setting, edit));
            }
            self.state.hosts.insert(name.clone(), seated.host);
        }
        self.forget(&policy.hosts.keys().cloned().collect());
        if self.reasons.is_empty() {
            let all = self.state.hosts.values().all(|host| host.mode == Mode::Native);
            self.say(if all { Reason::AllNative } else { Reason::NothingNew });
        }
    }

    /// Forgets hosts that are not in the policy any more. Their records stay.
    fn forget(&mut self, kept: &BTreeSet<HostName>) {
        let (stay, gone): (BTreeMap<HostName, Host>, BTreeMap<HostName, Host>) =
            std::mem::take(&mut self.state.hosts)
                .into_iter()
                .partition(|(name, _)| kept.contains(name));
        self.state.hosts = stay;
        for (host, old) in gone {
            let reason = Reason::Forgotten { host: host.clone(), addresses: words(&old.ours) };
            self.reasons.push((Some(host), reason));
        }
        if self.state.wish.as_ref().is_some_and(|wish| !kept.contains(&wish.host)) {
            self.state.wish = None;
        }
    }

    /// The state in which these hosts are as they were.
    fn without(&self, refused: &BTreeMap<HostName, Host>) -> DnsState {
        let mut state = self.state.clone();
        state.hosts.extend(refused.iter().map(|(name, host)| (name.clone(), host.clone())));
        state.restate(&self.now);
        state
    }

    fn future(&self, state: DnsState, settings: BTreeMap<Setting, Edit>) -> Future<DnsState> {
        let reasons = self.reasons.iter().map(|(_, reason)| reason);
        Future { settings, ..Future::of::<Dns>(state, reasons) }
    }

    /// As a decision.
    pub(super) fn decision(&self) -> Decision<DnsState> {
        let undone = self.without(&self.undone);
        let settings = self.moves.values().cloned().collect();
        Decision {
            from: self.from.clone(),
            wished: self.future(self.state.clone(), settings),
            standing: None,
            checks: Vec::new(),
            held: undone.clone(),
            undone,
            references: Vec::new(),
        }
    }

    /// The future that came true, host by host.
    pub(super) fn settle(
        mut self,
        written: &BTreeMap<Setting, Written>,
    ) -> (Future<DnsState>, Settled) {
        let mut settled = Settled::Applied;
        let mut refused = BTreeMap::new();
        for (name, (setting, edit)) in std::mem::take(&mut self.moves) {
            let Some(mut old) = self.undone.get(&name).cloned() else { continue };
            let host = name.clone();
            let reason = match written.get(&setting) {
                Some(Written::Done) => continue,
                Some(Written::Refused { why, retry_after_sec }) => {
                    old.leave = retry_after_sec.map(|sec| Leave { at: self.now.clone(), sec });
                    Reason::Refused { host, why: why.clone() }
                }
                Some(Written::Unreadable { why }) => {
                    old.unproven = self.state.hosts.get(&name).cloned().map(Box::new);
                    Reason::Unproven { host, why: why.clone() }
                }
                Some(Written::Overtaken { found }) => {
                    let (found, was, to) = (set(found), set(&edit.expected), set(&edit.to));
                    let altered = Reason::Altered {
                        host: host.clone(),
                        was: details(&was),
                        wished: details(&to),
                        is: details(&found),
                    };
                    if found.addresses() == to.addresses() {
                        // It points where it should, and somebody has to see what else happened.
                        self.reasons.push((Some(host), altered));
                        settled = Settled::RolledBack;
                        continue;
                    }
                    if found.addresses() == was.addresses() {
                        altered
                    } else {
                        let (found, ours) = (found.to_string(), was.to_string());
                        old.paused =
                            Some(HostPause { why: PauseWhy::Edited, at: self.now.clone() });
                        self.replace(&name, Reason::Edited { host, found, ours });
                        refused.insert(name, old);
                        continue;
                    }
                }
                None => Reason::Refused { host, why: "it was not tried".to_owned() },
            };
            settled = Settled::RolledBack;
            self.replace(&name, reason);
            refused.insert(name, old);
        }
        let state = self.without(&refused);
        (self.future(state, BTreeMap::new()), settled)
    }

    /// Says of a host what came of it in place of what was decided for it.
    fn replace(&mut self, host: &HostName, reason: Reason) {
        self.reasons.retain(|(of, _)| of.as_ref() != Some(host));
        self.reasons.push((Some(host.clone()), reason));
    }
}

/// A value as records.
fn set(value: &Value) -> RecordSet {
    match value {
        Value::Records(records) => records.clone(),
        Value::Member(_) | Value::Count(_) => RecordSet::default(),
    }
}
