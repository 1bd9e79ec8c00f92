//! What of a pool's state its next step may depend on, as one number.
//!
//! Moments become classes of age and questions of before and after; texts for people, counters that
//! nothing is decided on, and numbers of generations are left out. Every field is named, so that a
//! new one has to be thought of. Endpoints have no names: states that differ by them alone, or by the
//! order of a list, which only breaks ties, are one; the first that is found stands for them.
//!
//! **Invariant:** what a step is decided on is in the number.

use egressctl::names::Interface;
use egressctl::pool::candidate::{Candidate, List, Tested};
use egressctl::pool::state::{
    Bootstrap, Content, Egress, FailedWay, Mode, PoolState, Quarantined, ShortList, Slot,
    Transport, Way,
};
use egressctl::time::Moment;

/// Seconds between steps of a walk.
pub const APART: u64 = 10;
/// Grace, and the wait between attempts out of Direct: more than all short steps of a walk together.
pub const BRIEF: u64 = 10_000;
/// The wait between refreshes and the window of false alarms: more than all brief ones together.
pub const LENGTHY: u64 = 10_000_000;
/// More than any wait: a refusal doubles the wait between refreshes four times, and a tenth more.
pub const FOREVER: u64 = 400_000_000;
/// A slot of which nothing could be said so often hosts nobody.
pub const UNKNOWN_STEPS: u32 = 10;

/// Where counts of a policy end.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub failures: u32,
    pub retests: u32,
    pub repairs: u32,
    pub alarms: usize,
    /// Whether anything is waited for between attempts out of Direct, and between refreshes.
    pub brief: bool,
    pub lengthy: bool,
}

/// One state's number.
pub type Key = u128;

/// Makes of a state the one that stands for its number: counts that grow without end are kept small. How
/// often a way failed, in the order that this gives them; that a candidate failed in a slot, not how often.
pub fn normalize(state: &mut PoolState) {
    let rounds = rounds(state);
    for failed in &mut state.bootstrap.failed {
        failed.times = times(failed, rounds);
    }
    for slot in state.slots.values_mut() {
        // A moment in which nothing could be said is forgotten; a long row of them is a step of its own.
        slot.unknown = if slot.unknown >= UNKNOWN_STEPS { UNKNOWN_STEPS } else { 0 };
    }
    for list in [&mut state.pool, &mut state.fresh, &mut state.short].into_iter().flatten() {
        for struck in list.struck.values_mut() {
            *struck = (*struck).min(1);
        }
    }
}

/// How often a way failed beyond the rounds in which all that take turns did.
fn times(failed: &FailedWay, rounds: u32) -> u32 {
    let own = match failed.way {
        Way::Cached(_) | Way::Wan => failed.times - rounds,
        Way::InPlace(_) | Way::Standby(_) => failed.times,
    };
    own.min(2)
}

/// How many whole rounds the ways that take turns have failed, but the last one.
fn rounds(state: &PoolState) -> u32 {
    if state.bootstrap.failed.is_empty() {
        return 0;
    }
    let pool = state.pool.iter().flat_map(|pool| pool.candidates.iter());
    let ways = pool.map(|candidate| Way::Cached(candidate.name.clone())).chain([Way::Wan]);
    let times = |way: Way| {
        let failed = state.bootstrap.failed.iter().find(|failed| failed.way == way);
        failed.map_or(0, |failed| failed.times)
    };
    ways.map(times).min().unwrap_or(0).saturating_sub(1)
}

/// FNV-1a with 128 bits: of a million states the chance that two have one is 10^-26.
struct Fnv(u128);

impl Fnv {
    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// A word at a time: what is written is of few bits.
    fn put(&mut self, word: u64) {
        let prime = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        self.0 = (self.0 ^ u128::from(word)).wrapping_mul(prime);
    }
}

/// Bits that are collected to words.
struct Bits {
    words: Vec<u64>,
    word: u64,
    free: u32,
}

impl Bits {
    fn new() -> Self {
        Self { words: Vec::new(), word: 0, free: 64 }
    }

    /// A value below `1 << width`.
    fn put(&mut self, width: u32, value: u64) {
        assert!(value < 1 << width, "{value} has more than {width} bits");
        if self.free < width {
            self.words.push(self.word);
            (self.word, self.free) = (0, 64);
        }
        self.word = self.word << width | value;
        self.free -= width;
    }

    fn done(mut self) -> Vec<u64> {
        self.words.push(self.word);
        self.words
    }

    fn flag(&mut self, flag: bool) {
        self.put(1, u64::from(flag));
    }
}

/// The number of a state at a moment.
pub fn key(state: Option<&PoolState>, now: &Moment, limits: Limits, names: &[&str]) -> Key {
    let Some(state) = state else { return 0 };
    let mut global = Bits::new();
    let view = View { state, now, limits, rounds: rounds(state) };
    view.global(&mut global);
    let mut signatures: Vec<Vec<u64>> = names.iter().map(|name| view.endpoint(name)).collect();
    signatures.sort_unstable();
    let mut hash = Fnv::new();
    for word in global.done().iter().chain(signatures.iter().flatten()) {
        hash.put(*word);
    }
    hash.0
}

struct View<'a> {
    state: &'a PoolState,
    now: &'a Moment,
    limits: Limits,
    rounds: u32,
}

impl View<'_> {
    fn slot_index(&self, slot: &Interface) -> u64 {
        let index = self.state.slots.keys().position(|name| name == slot);
        index.map_or(7, |n| u64::try_from(n).unwrap())
    }

    /// How old a moment is, as far as there are waits that tell: a brief one, the lengthy one, and one
    /// that was doubled.
    fn age(&self, out: &mut Bits, at: Option<&Moment>, brief: bool, doubled: bool) {
        let class = at.map_or(7, |at| match self.now.since(at).as_secs() {
            0..BRIEF => 0,
            BRIEF..LENGTHY => u64::from(brief),
            LENGTHY..FOREVER if doubled => 2,
            _ => 3,
        });
        out.put(3, class);
    }

    fn global(&self, out: &mut Bits) {
        let PoolState {
            mode,
            since: _,
            proven,
            settle,
            retired,
            pool,
            fresh,
            short,
            last_generation: _,
            slots,
            quarantine: _,
            homes,
            egress,
            repair_events_since_full_refresh,
            refresh_tried_at,
            wish,
            refresh_asked,
            none_serves_since,
            none_serves_seen,
            short_list,
            refresh_failed: _,
            ways_failed,
            refusals: _,
            refusal_wait_sec,
            bootstrap: Bootstrap { transport, failed },
            standby,
            surroundings: _,
            names: _,
            wan_exit_ip,
        } = self.state;
        assert!(wish.is_none() && standby.is_none() && wan_exit_ip.is_none() && !retired);
        out.put(3, *mode as u64);
        out.flag(*proven);
        out.flag(*settle);
        out.flag(refresh_asked.is_some());
        out.flag(refusal_wait_sec.is_some());
        out.put(3, u64::from((*repair_events_since_full_refresh).min(self.limits.repairs)));
        // While slots serve there is but the lengthy wait, and Direct begins with an attempt.
        let brief_waits = mode.is_direct() || !proven;
        let waits = self.limits.brief || self.limits.lengthy || refusal_wait_sec.is_some();
        let told = refresh_tried_at.as_ref().filter(|_| waits);
        self.age(out, told, brief_waits && self.limits.brief, refusal_wait_sec.is_some());
        let tried = refresh_tried_at.as_ref();
        let overtaken = |list: &List| tried.is_some_and(|tried| later(tried, &list.fetched_at));
        self.age(out, none_serves_since.as_ref(), true, false);
        let stood = none_serves_seen.as_ref().zip(none_serves_since.as_ref());
        out.flag(stood.is_some_and(|(seen, since)| seen.since(since).as_secs() >= BRIEF));
        for list in [fresh, short] {
            out.flag(list.as_ref().is_some_and(overtaken));
            let fetched = list.as_ref().map(|list| &list.fetched_at);
            self.age(out, fetched.filter(|_| self.limits.lengthy), false, false);
        }
        for list in [pool, fresh, short] {
            out.put(3, list.as_ref().map_or(0, |list| 1 + list.candidates.len() as u64));
            assert!(list.as_ref().is_none_or(|list| list.validators.is_none()));
        }
        let generation = |list: &Option<List>| list.as_ref().map(|list| list.generation);
        out.flag(generation(pool) == generation(fresh));
        for slot in slots.values() {
            self.slot(out, slot);
        }
        for home in homes.values() {
            out.put(3, self.slot_index(home));
        }
        out.put(3, egress.len() as u64);
        for egress in egress.values() {
            match egress {
                Egress::Slot(slot) => out.put(3, self.slot_index(slot)),
                Egress::Direct => out.put(3, 6),
                Egress::None => out.put(3, 5),
            }
        }
        out.put(2, short_list.as_ref().map_or(0, |ShortList { times, .. }| u64::from(*times)));
        for slot in slots.keys() {
            out.flag(ways_failed.contains(slot));
        }
        out.flag(ways_failed.iter().any(|way| !slots.contains_key(way)));
        out.put(
            4,
            match transport {
                None => 15,
                Some(Transport::Wan) => 14,
                Some(Transport::Slot(slot)) => self.slot_index(slot),
                Some(Transport::Standby(_)) => 13,
            },
        );
        let failures = |is: &dyn Fn(&Way) -> bool| {
            let failed = failed.iter().find(|FailedWay { way, .. }| is(way));
            failed.map_or(0, |failed| u64::from(times(failed, self.rounds)))
        };
        out.put(2, failures(&|way| *way == Way::Wan));
        for slot in slots.keys() {
            out.put(2, failures(&|way| matches!(way, Way::InPlace(place) if place == slot)));
        }
    }

    fn slot(&self, out: &mut Bits, slot: &Slot) {
        let Slot {
            content,
            since: _,
            failures,
            failed,
            retests_failed,
            retests_passed,
            false_alarms,
            replaced,
            mtu_lowered,
            saturated,
            unknown,
            verdict: _,
            why: _,
            latency_ms: _,
            // How long silence is waited for decides nothing where the world answers at once.
            smoothed_ms: _,
            exit_ip: _,
            exit_ip_at: _,
            counters: _,
        } = slot;
        assert_eq!(*saturated, 0);
        out.put(
            2,
            match content {
                Content::Empty => 0,
                Content::Loaded(_) => 1,
                Content::Lent(_) => 2,
            },
        );
        out.flag(*failed);
        // Of a failed slot they are enough, however many.
        out.put(2, if *failed { 0 } else { u64::from((*failures).min(self.limits.failures)) });
        out.put(2, u64::from((*retests_failed).min(self.limits.retests)));
        out.put(2, u64::from((*retests_passed).min(self.limits.retests)));
        let alarms = false_alarms.iter().filter(|at| self.now.since(at).as_secs() < LENGTHY);
        out.put(2, alarms.count().min(self.limits.alarms) as u64);
        out.flag(replaced.is_some());
        out.flag(*mtu_lowered);
        out.flag(*unknown >= UNKNOWN_STEPS);
    }

    /// What is known of each endpoint.
    fn endpoint(&self, name: &str) -> Vec<u64> {
        let PoolState { pool, fresh, short, slots, quarantine, short_list, bootstrap, .. } =
            self.state;
        let is = |candidate: &Candidate| candidate.name == name;
        let mut bits = Bits::new();
        for slot in slots.values() {
            bits.flag(slot.candidate().is_some_and(is));
            bits.flag(slot.replaced.as_ref().is_some_and(is));
        }
        let quarantined = quarantine.values().find(|quarantined| quarantined.name == name);
        bits.flag(quarantined.is_some());
        for list in [pool, fresh, short] {
            let listed = list.as_ref().filter(|list| list.candidates.iter().any(is));
            let Some(list) = listed else {
                bits.put(3, 0);
                continue;
            };
            let after =
                |at: &Moment| quarantined.is_some_and(|Quarantined { since, .. }| later(at, since));
            let tested = match list.tested.get(name) {
                None => 1,
                Some(Tested::Failed { .. }) => 2,
                Some(Tested::Passed { at, .. }) => 3 + u64::from(after(at)),
            };
            bits.put(3, tested);
            bits.flag(after(&list.fetched_at));
            bits.flag(list.struck.contains_key(name));
        }
        let failed = bootstrap
            .failed
            .iter()
            .find(|FailedWay { way, .. }| matches!(way, Way::Cached(cached) if cached == name));
        bits.put(2, failed.map_or(0, |failed| u64::from(times(failed, self.rounds))));
        bits.flag(short_list.as_ref().is_some_and(|ShortList { endpoints, .. }| {
            let candidate = egressctl::simulate::candidate(name, 0).unwrap();
            endpoints.contains(&candidate.endpoint())
        }));
        bits.done()
    }
}

pub fn later(one: &Moment, other: &Moment) -> bool {
    if one.boot == other.boot { one.up_ms > other.up_ms } else { one.at > other.at }
}

/// Whether every slot serves, and nothing is left to do.
pub fn is_well(state: Option<&PoolState>) -> bool {
    state.is_some_and(|state| {
        state.mode == Mode::Normal
            && !state.settle
            && state.refresh_asked.is_none()
            && state.slots.iter().all(|(name, slot)| {
                state.serves(name) && slot.failures == 0 && slot.unknown < UNKNOWN_STEPS
            })
    })
}

/// What of a state the kernel depends on.
pub fn world_key(state: Option<&PoolState>) -> Key {
    let Some(state) = state else { return 0 };
    let mut hash = Fnv::new();
    hash.put(u64::from(state.proven));
    hash.put(u64::from(state.mode.is_direct()));
    for slot in state.slots.values() {
        let (kind, candidate) = match &slot.content {
            Content::Empty => (0, None),
            Content::Loaded(candidate) => (1, Some(candidate)),
            Content::Lent(candidate) => (2, Some(candidate)),
        };
        hash.put(kind);
        hash.put(candidate.map_or(0, |candidate| u64::from(candidate.name.as_bytes()[0])));
        hash.put(u64::from(slot.mtu_lowered));
    }
    for egress in state.egress.values() {
        hash.put(match egress {
            Egress::Slot(slot) => u64::from(*slot.as_str().as_bytes().last().unwrap()),
            Egress::Direct => 1,
            Egress::None => 2,
        });
    }
    hash.0
}
