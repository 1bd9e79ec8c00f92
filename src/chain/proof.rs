//! What follows once nodes were put in place: what passes is kept, what does not is not.
//!
//! **Invariant:** a node that no request has passed is not left in place, but where a person chose it,
//! where a restart lost it, or where none of its hop passes; nothing is marked while the uplink is down.

mod built;

use super::drive;
use super::legs::Legs;
use super::reason::Reason;
use super::rebuild::{Field, Next};
use super::settle::{Verdicts, changed, failed, over};
use super::state::ChainState;
use super::turn::{hold, take_over};
use super::under_way::{Purpose, Seats, UnderWay};
use super::{Chain, ask, decision_of, future, sight, tunnels};
use crate::clash::choice::Confirmed;
use crate::machine::{Carried, Decision, Future, Proof, Settled, Subject};
use crate::policy::ChainPolicy;
use crate::setting::{Value, Written};
use crate::time::Moment;

/// Says what follows from what was put in place.
pub(super) fn prove(
    subject: &Subject<'_, Chain>,
    decided: &Decision<ChainState>,
    carried: &Carried<'_>,
) -> Proof<ChainState> {
    let Some(way) = &decided.wished.state.under_way else {
        return Proof::Settle(Box::new(decided.wished.clone()), Settled::Applied);
    };
    let now = &carried.before.started;
    let policy = subject.policy;
    let mut proving = Proving { subject, policy, carried, now, way: (**way).clone() };
    if !proving.way.stages.is_empty() {
        // This stands: now for what stands on it.
        proving.way.stages.remove(0);
        return Proof::Next(Box::new(decision_of(subject, proving.way, now)));
    }
    if let Purpose::Retries(_) = &proving.way.purpose {
        return proving.retries(decided);
    }
    match proving.written(decided) {
        Went::Done => proving.done(),
        Went::Refused(why) => proving.refused(why),
        Went::Overtaken(by) => proving.overtaken(&by),
        Went::Unknown(why) => Proof::Unknown(why),
    }
}

/// What became of the writes of a decision.
enum Went {
    Done,
    Refused(String),
    Overtaken(Vec<(usize, String)>),
    Unknown(String),
}

struct Proving<'a> {
    subject: &'a Subject<'a, Chain>,
    policy: &'a ChainPolicy,
    carried: &'a Carried<'a>,
    now: &'a Moment,
    way: UnderWay,
}

impl Proving<'_> {
    /// What became of the writes, and what stands since.
    fn written(&mut self, decided: &Decision<ChainState>) -> Went {
        if tunnels::driver(self.policy).is_some() {
            // The kernel was read back already.
            self.way.stands.clone_from(&self.way.tries);
            return Went::Done;
        }
        let (mut refused, mut by) = (None, Vec::new());
        for (place, hop) in self.policy.hops.iter().enumerate() {
            let Some(setting) = drive::setting(self.policy, &hop.group) else { continue };
            let Some(edit) = decided.wished.settings.get(&setting) else { continue };
            let stands = match (self.carried.written.get(&setting), &edit.to) {
                (Some(Written::Done), Value::Member(to)) => to.clone(),
                (Some(Written::Overtaken { found: Value::Member(found) }), _) => {
                    by.push((place, found.clone()));
                    found.clone()
                }
                (Some(Written::Refused { why, .. }), _) => {
                    refused = Some(format!("{setting}: {why}"));
                    continue;
                }
                (Some(Written::Unreadable { why }), _) => {
                    return Went::Unknown(format!("{setting}: {why}"));
                }
                (Some(Written::Overtaken { found }), _) => {
                    return Went::Unknown(format!("{setting} reads back as {found}"));
                }
                (Some(Written::Done), Value::Count(_) | Value::Records(_)) | (None, _) => continue,
            };
            if let Some(seat) = self.way.stands.get_mut(place) {
                *seat = stands;
            }
        }
        match (by.is_empty(), refused) {
            (false, _) => Went::Overtaken(by),
            (true, Some(why)) => Went::Refused(why),
            (true, None) => Went::Done,
        }
    }

    /// Services of a gost were told how often to try again. One that was not is left for a while.
    fn retries(&self, decided: &Decision<ChainState>) -> Proof<ChainState> {
        let mut refused = Vec::new();
        for setting in decided.wished.settings.keys() {
            match self.carried.written.get(setting) {
                Some(Written::Done) | None => {}
                Some(Written::Unreadable { why }) => {
                    return Proof::Unknown(format!("{setting}: {why}"));
                }
                Some(Written::Refused { why, .. }) => {
                    refused.push(Reason::Refused { why: format!("{setting}: {why}") });
                }
                Some(Written::Overtaken { found }) => {
                    let why = format!("{setting}: somebody set it to {found}");
                    refused.push(Reason::Refused { why });
                }
            }
        }
        let mut state = self.way.base.clone();
        state.retries_refused = (!refused.is_empty()).then(|| self.now.clone());
        let settled = if refused.is_empty() { Settled::Applied } else { Settled::RolledBack };
        self.settle(state, &self.way.before, &refused, settled)
    }

    fn settle(
        &self,
        mut state: ChainState,
        to: &Seats,
        reasons: &[Reason],
        settled: Settled,
    ) -> Proof<ChainState> {
        state.open_or_close(self.now);
        state.restate(self.now);
        let settings = drive::edits(self.policy, &self.way.stands, to);
        let reasons: Vec<Reason> = self.way.said.iter().chain(reasons).cloned().collect();
        let future = Future { settings, ..future(self.subject, state, &reasons) };
        Proof::Settle(Box::new(future), settled)
    }

    /// Nothing of it is kept.
    fn taken_back(&self, state: ChainState, reasons: &[Reason]) -> Proof<ChainState> {
        self.settle(state, &self.way.before, reasons, Settled::RolledBack)
    }

    /// Somebody chose while ours was being put in place.
    fn overtaken(&self, by: &[(usize, String)]) -> Proof<ChainState> {
        let mut state = self.way.base.clone();
        let mut to = self.way.before.clone();
        let mut reasons = Vec::new();
        for (place, member) in by {
            let hop = state.hops.get_mut(*place).zip(self.policy.hops.get(*place));
            if let (Some((hop, wanted)), Some(seat)) = (hop, to.get_mut(*place)) {
                take_over(hop, wanted, self.confirmed(member), self.now);
                seat.clone_from(member);
                let (hop, member) = (hop.name.clone(), member.clone());
                reasons.push(Reason::PersonsChoice { hop, member });
            }
        }
        self.settle(state, &to, &reasons, Settled::Applied)
    }

    fn confirmed(&self, member: &str) -> Confirmed {
        Confirmed { member: member.to_owned(), life: self.way.life.clone() }
    }

    fn refused(&mut self, why: String) -> Proof<ChainState> {
        match &self.way.purpose {
            Purpose::Again | Purpose::Build | Purpose::Switch { .. } | Purpose::Retries(_) => {
                self.taken_back(self.way.base.clone(), &[Reason::Refused { why }])
            }
            Purpose::Return(change) | Purpose::Rotation(change) | Purpose::Faster(change) => {
                let mut state = self.way.base.clone();
                if let Some(hop) = state.hops.get_mut(change.hop) {
                    hop.changed = Some(self.now.clone());
                    hop.better = None;
                    hop.passes = 0;
                }
                self.taken_back(state, &[Reason::Refused { why }])
            }
            Purpose::Rebuild(_) | Purpose::Combos(_) => {
                let legs = Legs { legs: vec![None; self.way.tries.len()], path: None };
                self.searched(&legs, Some(Reason::Refused { why }))
            }
        }
    }

    fn done(&mut self) -> Proof<ChainState> {
        match &self.way.purpose {
            Purpose::Again => {
                let mut state = self.way.base.clone();
                for (hop, seat) in state.hops.iter_mut().zip(&self.way.tries) {
                    hop.confirmed = self.confirmed(seat);
                }
                self.settle(state, &self.way.tries, &[], Settled::Applied)
            }
            Purpose::Switch { hop } => {
                let (state, reason) = switched(self.policy, &self.way, *hop, self.now);
                self.settle(state, &self.way.tries, reason.as_slice(), Settled::Applied)
            }
            Purpose::Retries(_) => {
                self.settle(self.way.base.clone(), &self.way.before, &[], Settled::Applied)
            }
            Purpose::Build => match self.look() {
                Err(questions) => Proof::Ask(questions),
                Ok(legs) => self.built(&legs),
            },
            Purpose::Return(_) | Purpose::Rotation(_) | Purpose::Faster(_) => match self.look() {
                Err(questions) => Proof::Ask(questions),
                Ok(legs) => self.changed(&legs),
            },
            Purpose::Rebuild(_) | Purpose::Combos(_) => match self.look() {
                Err(questions) => Proof::Ask(questions),
                Ok(legs) => self.searched(&legs, None),
            },
        }
    }

    /// How what is in place carries, or what is to be asked to know that.
    fn look(&self) -> Result<Legs, Vec<crate::observation::Question>> {
        let (policy, seen, base) = (self.policy, self.carried.seen, &self.way.base);
        if tunnels::driver(policy).is_some() {
            let asks = ask::tunnel_legs(policy, base, seen, &self.way.tries);
            if !asks.is_empty() && self.carried.may_ask {
                return Err(asks);
            }
            return Ok(sight::legs(policy, base, seen, &self.way.tries));
        }
        let members = ask::members_of(policy, &self.way.tries);
        match ask::legs(policy, seen, &self.way.tries, members.clone(), &members) {
            Some(questions) if self.carried.may_ask => Err(questions),
            Some(_) | None => Ok(sight::legs(policy, base, seen, &self.way.tries)),
        }
    }

    /// Whether the uplink is down, or what is to be asked to know that; `unasked` where there is no
    /// time to ask.
    fn is_offline(&self, unasked: bool) -> Result<bool, Vec<crate::observation::Question>> {
        match (sight::wan(self.carried.seen), ask::wan(self.policy, &self.way.base)) {
            (Some(answers), _) => Ok(!answers),
            (None, None) => Ok(false),
            (None, Some(question)) if self.carried.may_ask => Err(vec![question]),
            (None, Some(_)) => Ok(unasked),
        }
    }

    /// The uplink went down meanwhile.
    fn offline(&self) -> Proof<ChainState> {
        let mut state = self.way.base.clone();
        hold(&mut state);
        self.taken_back(state, &[Reason::Offline])
    }

    /// One node in place of one that carries.
    fn changed(&mut self, legs: &Legs) -> Proof<ChainState> {
        if legs.passes() {
            let (state, reason) = changed(self.policy, &self.way, legs, self.now);
            let to = self.way.tries.clone();
            return self.settle(state, &to, reason.as_slice(), Settled::Applied);
        }
        // Nobody is blamed without an answer.
        match self.is_offline(true) {
            Err(questions) => Proof::Ask(questions),
            Ok(true) => self.offline(),
            Ok(false) => {
                let (state, reason) = failed(self.policy, &self.way, legs, self.now);
                self.taken_back(state, reason.as_slice())
            }
        }
    }

    /// One of the tries of a search.
    fn searched(&mut self, legs: &Legs, refused: Option<Reason>) -> Proof<ChainState> {
        let base = self.way.base.clone();
        let field = Field { policy: self.policy, state: &base, now: self.now };
        let tries = self.way.tries.clone();
        let next = match &mut self.way.purpose {
            Purpose::Rebuild(rebuild) => rebuild.judged(field, &tries, legs),
            Purpose::Combos(combos) => combos.judged(field, &tries, legs.passes()),
            Purpose::Again
            | Purpose::Build
            | Purpose::Switch { .. }
            | Purpose::Retries(_)
            | Purpose::Return(_)
            | Purpose::Rotation(_)
            | Purpose::Faster(_) => return self.taken_back(base.clone(), &[]),
        };
        self.goes_on(next, legs, refused)
    }

    /// Puts the next try of a search in place, or ends it.
    fn goes_on(&mut self, next: Next, legs: &Legs, refused: Option<Reason>) -> Proof<ChainState> {
        let base = self.way.base.clone();
        let field = Field { policy: self.policy, state: &base, now: self.now };
        let tries = self.way.tries.clone();
        let (seats, finished) = match next {
            Next::Try(seats) if self.carried.may_ask => {
                self.way.tries = seats;
                return Proof::Next(Box::new(decision_of(
                    self.subject,
                    self.way.clone(),
                    self.now,
                )));
            }
            Next::Try(untried) => (self.stopped(field, &untried), false),
            Next::Over(seats) => (seats, true),
        };
        let verdicts = Verdicts { legs: legs.clone(), finished };
        let is_proven = legs.passes() && seats == tries;
        // It answered before the search, and a search that mends nothing blames nobody.
        if !is_proven && finished {
            match self.is_offline(false) {
                Err(questions) => return Proof::Ask(questions),
                Ok(true) => return self.offline(),
                Ok(false) => {}
            }
        }
        let (state, mut reasons, settled) =
            over(self.policy, &self.way, &seats, &verdicts, self.now);
        reasons.extend(refused.filter(|_| settled == Settled::RolledBack));
        // What was made stays, whether it carries or not.
        let settled = if self.way.builds { Settled::Applied } else { settled };
        self.settle(state, &seats, &reasons, settled)
    }

    fn stopped(&mut self, field: Field<'_>, untried: &Seats) -> Seats {
        match &mut self.way.purpose {
            Purpose::Rebuild(rebuild) => rebuild.stop(field, untried),
            Purpose::Combos(combos) => combos.kept.clone(),
            Purpose::Again
            | Purpose::Build
            | Purpose::Switch { .. }
            | Purpose::Retries(_)
            | Purpose::Return(_)
            | Purpose::Rotation(_)
            | Purpose::Faster(_) => self.way.before.clone(),
        }
    }
}

/// A person's choice, carried out.
pub(super) fn switched(
    policy: &ChainPolicy,
    way: &UnderWay,
    place: usize,
    now: &Moment,
) -> (ChainState, Option<Reason>) {
    let mut state = way.base.clone();
    let hop = state.hops.get_mut(place).zip(policy.hops.get(place));
    let Some(((hop, wanted), member)) = hop.zip(way.tries.get(place)) else { return (state, None) };
    let confirmed = Confirmed { member: member.clone(), life: way.life.clone() };
    take_over(hop, wanted, confirmed, now);
    let reason = Reason::Switched { hop: hop.name.clone(), member: member.clone() };
    (state, Some(reason))
}
