//! One host name in one counted round: what its record holds, who may be in it, and what was decided.
//!
//! **Invariant:** only a node that has just shown that it serves is put into a record, and nobody
//! is put into one that holds what is not ours.

use super::ask;
use super::name::{HostName, NodeName};
use super::reason::{Reason, Stranger};
use super::record::RecordSet;
use super::round;
use super::state::{Adopt, Host, HostPause, Mode, Moved, Node, PauseWhy, Streak, Verdict};
use crate::observation::NodesReading;
use crate::policy::DnsPolicy;
use crate::policy::dns as policy;
use crate::setting::{Edit, Value};
use crate::time::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// A host name in a round.
pub(super) struct Seat<'a> {
    pub(super) policy: &'a DnsPolicy,
    pub(super) name: &'a HostName,
    pub(super) wanted: &'a policy::Host,
    pub(super) nodes: &'a BTreeMap<NodeName, Node>,
    pub(super) now: &'a Moment,
    /// The record, once it was read.
    pub(super) found: Option<&'a RecordSet>,
    /// What is remembered if all comes true.
    pub(super) host: Host,
    /// Who is to be in the record; `None`: it stays.
    pub(super) publish: Option<BTreeMap<NodeName, Ipv4Addr>>,
    pub(super) reasons: Vec<Reason>,
}

/// What became of a host name in a round.
pub(super) struct Seated {
    /// What is remembered if its write comes true.
    pub(super) host: Host,
    /// What is remembered if not.
    pub(super) undone: Host,
    /// The write.
    pub(super) edit: Option<Edit>,
    pub(super) reasons: Vec<Reason>,
}

impl Seat<'_> {
    /// Counts whether fallbacks serve in the native's place, and lets windows pass.
    pub(super) fn count(&mut self, seen: &NodesReading) {
        let (params, now) = (&self.policy.params, self.now);
        let over = |since: &Moment, sec: u64| now.since(since) >= Duration::from_secs(sec);
        let order = self.order();
        self.host.members.retain(|name, _| order.contains(name) && *name != self.wanted.native);
        for name in order.iter().skip(1) {
            let check = self.policy.nodes.get(name);
            let check = check.and_then(|node| ask::serving_check(self.policy, self.wanted, node));
            let member = self.host.members.entry(name.clone()).or_default();
            member.serves = check.map(|check| {
                let (verdict, why, _) = round::verdict(seen, &check);
                let mut streak: Streak = member.serves.take().unwrap_or_default();
                streak.count(verdict, &why, now, round::apart(self.policy));
                streak
            });
            member.left.retain(|at| !over(at, params.flap_window_sec));
            if member.quarantined.as_ref().is_some_and(|at| over(at, params.quarantine_sec)) {
                member.quarantined = None;
            }
        }
        self.host.left.retain(|at| !over(at, params.flap_window_sec));
        let in_quarantine = self.host.mode == Mode::NativeQuarantined;
        let ended =
            self.host.quarantined.as_ref().is_some_and(|at| over(at, params.quarantine_sec));
        // The row of that state ends it where it has one.
        if ended && !in_quarantine {
            self.host.quarantined = None;
        }
        let said = self.host.leave.as_ref();
        if said.is_some_and(|leave| over(&leave.at, leave.sec)) {
            self.host.leave = None;
        }
    }

    /// Takes the step's one decision. `record`: what was read.
    pub(super) fn decide(
        mut self,
        record: Result<&RecordSet, &str>,
        wish: Option<(&NodeName, bool)>,
    ) -> (Seated, bool) {
        match record {
            Ok(_) => self.host.unreadable = None,
            Err(why) => {
                self.host.unreadable = Some(why.to_owned());
                self.say(Reason::Unreadable { host: self.name.clone(), why: why.to_owned() });
            }
        }
        if let Some(found) = self.found {
            self.host.ttl = found.ttl();
        }
        let undone = self.host.clone();
        let said = self.reasons.clone();
        let granted = if let Some((node, force)) = wish {
            self.choose(node, force)
        } else {
            self.look();
            true
        };
        let blocked = self.publish.is_some()
            && (self.found.is_none() || (wish.is_none() && self.must_wait()));
        if blocked {
            self.reasons = said;
            self.publish = None;
            self.host = undone.clone();
            if let Some(sec) = self.wait_sec() {
                self.say(Reason::Waiting { host: self.name.clone(), sec });
            }
        }
        let edit = self.edit();
        (Seated { host: self.host, undone, edit, reasons: self.reasons }, granted)
    }

    /// What precedes the rows: whose the record is, and whether the host is left alone.
    fn look(&mut self) {
        let Some(found) = self.found else {
            // What needs no write goes on.
            if self.host.paused.is_none()
                && self.host.adopt.is_none()
                && self.host.unproven.is_none()
            {
                self.rows();
            }
            return;
        };
        let addresses = found.addresses();
        if let Some(unproven) = self.host.unproven.take() {
            let done = addresses == unproven.ours;
            self.say(Reason::Settled { host: self.name.clone(), done });
            if done {
                let members = std::mem::take(&mut self.host.members);
                let ttl = self.host.ttl;
                // A person may have spoken since.
                let paused = self.host.paused.take().or(unproven.paused.clone());
                self.host = Host { members, ttl, paused, unproven: None, ..*unproven };
                return;
            }
        }
        if let Some(how) = self.host.adopt.take() {
            return self.adopt(how, found);
        }
        let why = self.host.paused.as_ref().map(|paused| paused.why);
        match (addresses == self.host.ours, why) {
            (true, Some(PauseWhy::Edited)) => {
                self.host.paused = None;
                self.say(Reason::OursAgain { host: self.name.clone() });
            }
            (false, None) => {
                let (found, ours) = (found.to_string(), words(&self.host.ours));
                self.say(Reason::Edited { host: self.name.clone(), found, ours });
                self.pause(PauseWhy::Edited);
            }
            (_, Some(_)) => {}
            (true, None) => {
                if let Some(ttl) = self.host.ttl.filter(|ttl| *ttl > self.wanted.ttl) {
                    let (host, wished) = (self.name.clone(), self.wanted.ttl);
                    self.say(Reason::LongTtl { host, ttl, wished });
                }
                self.rows();
            }
        }
    }

    /// Takes a record up, as it is when nobody knows of it.
    fn adopt(&mut self, how: Adopt, found: &RecordSet) {
        let addresses = found.addresses();
        self.host.paused = None;
        self.host.stay = None;
        self.host.native.clone_from(&self.wanted.native);
        self.host.rotated = Some(self.now.clone());
        let order = self.order();
        let named = |address: &Ipv4Addr| {
            let node = |name: &&NodeName| {
                self.policy.nodes.get(*name).is_some_and(|node| node.address == *address)
            };
            order.iter().find(node).map(|name| (name.clone(), *address))
        };
        let known: BTreeMap<NodeName, Ipv4Addr> = addresses.iter().filter_map(named).collect();
        let usable = !addresses.is_empty() && addresses.len() <= self.wanted.records;
        let is_known = usable && known.len() == addresses.len();
        if !usable || (!is_known && how == Adopt::Look) {
            let stranger = match addresses.len() {
                0 => Stranger::Missing,
                n if n > self.wanted.records => Stranger::Several { records: self.wanted.records },
                _ => Stranger::Elsewhere,
            };
            let (host, found) = (self.name.clone(), found.to_string());
            self.say(Reason::Foreign { host, found, stranger });
            self.enter(Mode::Native);
            self.host.published.clear();
            self.host.ours.clear();
            return self.pause(PauseWhy::Foreign);
        }
        self.host.ours = addresses;
        self.host.published = known;
        if is_known {
            self.say(Reason::Adopted { host: self.name.clone(), nodes: self.host.names() });
            if self.host.is_native() {
                return self.enter(Mode::Native);
            }
            self.host.stay = Some(self.now.clone());
            return self.enter(self.away_mode());
        }
        self.host.published.clear();
        let from = found.to_string();
        if self.is_fit(&self.wanted.native) {
            let all = self.with_native();
            self.put(&all, "a person gave it back");
            self.enter(Mode::Native);
            return self.say(Reason::Returned { host: self.name.clone(), from });
        }
        let others = self.others(self.wanted.records);
        if others.is_empty() {
            self.enter(Mode::Stranded);
            return self.say(Reason::Stranded { host: self.name.clone(), at: from });
        }
        self.host.stay = Some(self.now.clone());
        self.enter(self.away_mode());
        let why = "a person gave it back, and its native does not serve";
        self.put(&others, why);
        let (host, to) = (self.name.clone(), self.host.names());
        self.say(Reason::MovedAway { host, from, to, why: why.to_owned() });
    }

    /// Carries a person's choice out, whatever the record holds, unless it cannot be.
    fn choose(&mut self, node: &NodeName, force: bool) -> bool {
        let why = match self.found {
            None => Some("its record cannot be read".to_owned()),
            Some(found) if found.0.is_empty() => {
                Some("it has no record, and none is made: make one first".to_owned())
            }
            Some(found) if found.addresses().len() > self.wanted.records => Some(format!(
                "it has several addresses, {found}, and records is {}",
                self.wanted.records
            )),
            Some(_) if !force && !self.is_fit(node) => {
                Some(format!("{node} does not serve it now: say --force"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            self.say(Reason::ChoiceWaits { host: self.name.clone(), why });
            return false;
        }
        self.host.adopt = None;
        self.host.unproven = None;
        self.host.native.clone_from(&self.wanted.native);
        self.put(std::slice::from_ref(node), "a person chose it");
        let is_native = *node == self.wanted.native;
        self.enter(if is_native { Mode::Native } else { Mode::Fallback });
        self.host.stay = (!is_native).then(|| self.now.clone());
        self.say(Reason::PersonsChoice { host: self.name.clone(), node: node.clone() });
        self.pause(PauseWhy::Person);
        true
    }

    pub(super) fn say(&mut self, reason: Reason) {
        self.reasons.push(reason);
    }

    pub(super) fn enter(&mut self, mode: Mode) {
        self.host.enter(mode, self.now);
    }

    fn pause(&mut self, why: PauseWhy) {
        self.host.paused = Some(HostPause { why, at: self.now.clone() });
    }

    /// The native, then the others, as they are preferred.
    pub(super) fn order(&self) -> Vec<NodeName> {
        self.policy.order(self.name, self.wanted).into_iter().cloned().collect()
    }

    /// Where the host stands when its record does not hold its native.
    pub(super) fn away_mode(&self) -> Mode {
        if self.in_quarantine() { Mode::NativeQuarantined } else { Mode::Fallback }
    }

    /// Whether the native's quarantine runs.
    pub(super) fn in_quarantine(&self) -> bool {
        let limit = Duration::from_secs(self.policy.params.quarantine_sec);
        self.host.quarantined.as_ref().is_some_and(|at| self.now.since(at) < limit)
    }

    /// How much of the stay is left, in seconds, rounded up.
    pub(super) fn stay_left_sec(&self) -> u64 {
        let stay = Duration::from_secs(self.policy.params.minimum_stay_sec);
        let Some(since) = &self.host.stay else { return 0 };
        let left = stay.saturating_sub(self.now.since(since));
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    fn must_wait(&self) -> bool {
        self.wait_sec().is_some()
    }

    /// How long the provider wants to be left alone still, in seconds.
    fn wait_sec(&self) -> Option<u64> {
        let leave = self.host.leave.as_ref()?;
        Some(leave.sec.saturating_sub(self.now.since(&leave.at).as_secs()))
    }

    /// Puts nodes into the record: `publish`, and what is remembered if that comes true.
    pub(super) fn put(&mut self, names: &[NodeName], why: &str) {
        let address = |name: &NodeName| {
            let wanted = self.policy.nodes.get(name)?.address;
            // A node that moved is followed once it serves at its new address.
            let stands = self.host.published.get(name).filter(|_| !self.is_fit(name));
            Some((name.clone(), stands.copied().unwrap_or(wanted)))
        };
        let published: BTreeMap<NodeName, Ipv4Addr> = names.iter().filter_map(address).collect();
        self.host.ours = published.values().copied().collect();
        self.host.rotated = Some(self.now.clone());
        self.host.moved = Some(Moved { at: self.now.clone(), why: why.to_owned() });
        self.host.published.clone_from(&published);
        self.publish = Some(published);
    }

    /// The write that makes the record what it is to be.
    fn edit(&self) -> Option<Edit> {
        let (found, published) = (self.found?, self.publish.as_ref()?);
        let addresses: BTreeSet<Ipv4Addr> = published.values().copied().collect();
        if found.addresses() == addresses {
            return None;
        }
        let to = found.with(&addresses, self.wanted.ttl)?;
        Some(Edit { expected: Value::Records(found.clone()), to: Value::Records(to) })
    }
}

/// Addresses for people.
pub(super) fn words(addresses: &BTreeSet<Ipv4Addr>) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if all.is_empty() { "no address".to_owned() } else { all.join(" ") }
}

/// What the last check of a node showed, for people.
pub(super) fn why_of(node: &Node) -> String {
    match (node.checks.verdict, node.checks.why.as_str()) {
        (Verdict::Passed, _) => "it passes".to_owned(),
        (Verdict::Failed | Verdict::Unknown, "") => "it fails".to_owned(),
        (Verdict::Failed | Verdict::Unknown, why) => why.to_owned(),
    }
}
