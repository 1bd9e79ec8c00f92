//! A small abstract world for the machine of a chain: a core with a group a hop, nodes that live or
//! not and forward or not, an uplink, a clock.
//!
//! **Invariant:** the world answers questions and takes writes as the program's own step does it, and
//! changes only as a test says.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the world")]
#![allow(
    clippy::struct_excessive_bools,
    clippy::wildcard_enum_match_arm,
    reason = "a world is many things that are so or not, and a question that it does not know is a fault"
)]

use egressctl::chain::{Chain, ChainState};
use egressctl::machine::{
    Carried, Considered, Decision, Future, Machine, Owned, PartWish, Pausing, Proof, ReasonText,
    Settled, Subject,
};
use egressctl::names::PolicyName;
use egressctl::observation::{
    Asker, ConfigReading, CoreConfig, CoreFault, CoreQuestion, CoreReading, CoreSeen, Delay,
    DelayReading, Group, GroupFault, Life, Observation, PageReading, PagesReading, Process,
    Program, Question, Reading, Traffic,
};
use egressctl::policy::{ChainPolicy, Policy};
use egressctl::setting::{Setting, Value, Written};
use egressctl::time::Moment;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Write {
    Takes,
    Refused,
    /// Somebody selects this in this group meanwhile.
    Overtaken(&'static str, &'static str),
    Unreadable,
}

/// Two hops of two nodes each.
pub fn two_by_two() -> Json {
    json!([
        { "name": "entry", "nodes": { "a1": {}, "a2": {} } },
        { "name": "exit", "nodes": { "b1": {}, "b2": {} } },
    ])
}

/// The policy of a test, with these hops and thresholds.
pub fn policy(hops: &Json, params: &Json) -> ChainPolicy {
    of(&json!({
        "kind": "chain",
        "driver": { "clash": { "url": "http://127.0.0.1:9090" } },
        "hops": hops,
        "probe": { "urls": ["https://192.0.2.1/generate_204"] },
        "wan": { "urls": ["http://192.0.2.2/"] },
        "params": params,
    }))
}

/// A policy from its text.
pub fn of(text: &Json) -> ChainPolicy {
    let Policy::Chain(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a chain")
    };
    *policy
}

/// The world.
#[derive(Clone, Debug)]
pub struct World {
    pub now: Moment,
    pub core_up: bool,
    pub keeps: bool,
    /// Which run of the core it is.
    pub began: u64,
    /// The group of each hop, its members, and what is selected.
    pub groups: Vec<(String, Vec<String>, String)>,
    pub wan: bool,
    /// Whether nobody can say anything of the members.
    pub blind: bool,
    /// Nodes that do not answer.
    pub dead: BTreeSet<&'static str>,
    /// Nodes that answer and forward nothing to these.
    pub blocks: BTreeSet<(&'static str, &'static str)>,
    /// Nodes by which no request may leave.
    pub inner: BTreeSet<&'static str>,
    /// Whether the clients' own way is broken though every leg passes.
    pub drift: bool,
    pub latency: BTreeMap<&'static str, u64>,
    pub write: Write,
    /// What was selected, and whether it was.
    pub writes: Vec<(String, String)>,
    /// What was selected when legs were asked in the search for nodes.
    pub tried: Vec<Vec<String>>,
    /// How many rounds of questions there is time for while a change is proven.
    pub patience: u32,
}

impl World {
    /// Everything is well.
    pub fn new(policy: &ChainPolicy) -> Self {
        let at = "2026-03-01T12:00:00Z".parse().expect("a time");
        let group = |hop: &egressctl::policy::chain::Hop| {
            let all: Vec<String> = hop.nodes.iter().map(|node| node.member.clone()).collect();
            (hop.group.clone(), all.clone(), all[0].clone())
        };
        Self {
            now: Moment { at, boot: "boot".into(), up_ms: 1_000_000 },
            core_up: true,
            keeps: false,
            began: 1,
            groups: policy.hops.iter().map(group).collect(),
            wan: true,
            blind: false,
            dead: BTreeSet::new(),
            blocks: BTreeSet::new(),
            inner: BTreeSet::new(),
            drift: false,
            latency: BTreeMap::new(),
            write: Write::Takes,
            writes: Vec::new(),
            tried: Vec::new(),
            patience: 1_000,
        }
    }

    /// Time passes.
    pub fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// The core begins anew; without a cache it forgets what was selected.
    pub fn restart(&mut self) {
        self.began += 1;
        if !self.keeps {
            for (_, all, now) in &mut self.groups {
                all[0].clone_into(now);
            }
        }
    }

    /// A person selects.
    pub fn select(&mut self, group: &str, member: &str) {
        let found = self.groups.iter_mut().find(|(name, ..)| name == group);
        member.clone_into(&mut found.expect("a group").2);
    }

    /// What is selected, by hop.
    pub fn seats(&self) -> Vec<String> {
        self.groups.iter().map(|(.., now)| now.clone()).collect()
    }

    /// Whether a request passes hops up to this member.
    pub fn leg(&self, member: &str) -> bool {
        let place = self.groups.iter().position(|(_, all, _)| all.iter().any(|m| m == member));
        let Some(place) = place else { return false };
        let mut way: Vec<&str> =
            self.groups.iter().take(place).map(|(.., now)| now.as_str()).collect();
        way.push(member);
        self.carries(&way) && !self.inner.contains(member)
    }

    fn carries(&self, way: &[&str]) -> bool {
        self.wan
            && way.iter().all(|member| !self.dead.contains(member))
            && way.windows(2).all(|pair| {
                !self.blocks.iter().any(|(from, to)| *from == pair[0] && *to == pair[1])
            })
    }

    /// Whether requests pass all hops.
    pub fn is_served(&self) -> bool {
        let seats = self.seats();
        let way: Vec<&str> = seats.iter().map(String::as_str).collect();
        self.carries(&way) && !self.drift
    }

    pub fn answer(&mut self, question: &Question) -> Reading {
        match question {
            Question::Core(asked) => Reading::Core(Box::new(self.core(asked))),
            Question::Delays(asked) => {
                let delay = |name: &String| match (self.blind, self.leg(name)) {
                    (true, _) => Delay::Unknown("the core is busy".to_owned()),
                    (false, true) => {
                        Delay::Took(self.latency.get(name.as_str()).copied().unwrap_or(50))
                    }
                    (false, false) => Delay::Failed,
                };
                let of = |name: &String| (name.clone(), vec![delay(name)]);
                let members = asked.members.iter().map(of).collect();
                Reading::Delays(DelayReading { at: self.now.clone(), members })
            }
            Question::Pages(pages) => {
                let passes = match &pages.asker {
                    Asker::Wan => self.wan,
                    Asker::Named(name) if name == "path" => self.is_served(),
                    other => panic!("{other:?} does not ask"),
                };
                let (status, bytes, elapsed_ms) = (204, 0, 90);
                let well = PageReading::Answer { status, body: String::new(), bytes, elapsed_ms };
                let page = if passes { well } else { PageReading::TimedOut };
                let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
                Reading::Pages(PagesReading { at: self.now.clone(), pages })
            }
            other => panic!("{other:?} is not asked by a chain"),
        }
    }

    fn core(&self, asked: &CoreQuestion) -> CoreReading {
        let group = |name: &String| {
            let found = self.groups.iter().find(|(group, ..)| group == name);
            match found {
                Some((_, all, now)) => {
                    Ok(Group { kind: "Selector".to_owned(), now: now.clone(), all: all.clone() })
                }
                None => Err(GroupFault::NoGroup { kind: "VLESS".to_owned() }),
            }
        };
        let core = if self.core_up {
            Ok(CoreSeen {
                program: Program::SingBox,
                version: "sing-box 1.14.4".to_owned(),
                life: Life {
                    process: Some(Process { boot: "boot".to_owned(), pid: 7, began: self.began }),
                    totals: None,
                },
                groups: asked.groups.iter().map(|name| (name.clone(), group(name))).collect(),
                traffic: asked.traffic.then(|| Ok(Traffic::default())),
                config: if asked.config {
                    ConfigReading::Read(CoreConfig {
                        keeps_choices: self.keeps,
                        ..CoreConfig::default()
                    })
                } else {
                    ConfigReading::Unasked
                },
            })
        } else {
            Err(CoreFault::Down("refused".to_owned()))
        };
        CoreReading { at: self.now.clone(), core }
    }

    fn takes(&mut self, group: &str, expected: &str, member: &str) -> Written {
        let now = self.groups.iter().find(|(name, ..)| name == group).expect("a group").2.clone();
        if now == member {
            return Written::Done;
        }
        assert_eq!(expected, now, "it expects what does not stand there");
        self.writes.push((group.to_owned(), member.to_owned()));
        match self.write {
            Write::Refused => {
                let why = "the core answers 400".to_owned();
                Written::Refused { why, retry_after_sec: None }
            }
            Write::Overtaken(there, other) if there == group => {
                self.select(group, other);
                if other == member {
                    return Written::Done;
                }
                Written::Overtaken { found: Value::Member(other.to_owned()) }
            }
            Write::Takes | Write::Overtaken(..) => {
                self.select(group, member);
                Written::Done
            }
            Write::Unreadable => Written::Unreadable { why: "timed out".to_owned() },
        }
    }
}

/// A policy that is stepped in a world.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    pub policy: &'a ChainPolicy,
    pub state: Option<ChainState>,
    pub paused: bool,
    pub world: World,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was decided at first; nothing when the policy could not be served.
    pub decision: Option<Decision<ChainState>>,
    pub reasons: Vec<ReasonText>,
    pub settled: Option<Settled>,
    /// Whether nobody can tell what came true.
    pub unknown: bool,
}

impl Step {
    /// The codes of its reasons.
    pub fn codes(&self) -> Vec<&str> {
        self.reasons.iter().map(|reason| reason.code.as_str()).collect()
    }
}

impl<'a> Play<'a> {
    /// Before the first run.
    pub fn new(policy: &'a ChainPolicy) -> Self {
        Self { policy, state: None, paused: false, world: World::new(policy) }
    }

    fn with_subject<T>(&self, work: impl FnOnce(&Subject<'_, Chain>) -> T) -> T {
        let name = PolicyName::try_from("home".to_owned()).expect("a name");
        work(&Subject {
            name: &name,
            policy: self.policy,
            state: self.state.as_ref(),
            paused: self.paused,
            owned: &Owned::default(),
        })
    }

    /// One step, as the program makes it.
    pub fn step(&mut self) -> Step {
        self.world.tried.clear();
        let mut seen = Observation::new(self.world.now.clone());
        let mut rounds = 0;
        let considered = loop {
            let now = self.world.now.clone();
            match self.with_subject(|subject| Chain::consider(subject, &seen, &now, true)) {
                Considered::Ask(questions) => self.asked(questions, &mut seen),
                considered @ (Considered::Decide(_) | Considered::Unable(_)) => break considered,
            }
            rounds += 1;
            assert!(rounds < 12, "it asks without end");
        };
        let first = match considered {
            Considered::Decide(decision) => *decision,
            Considered::Unable(reasons) => {
                return Step { decision: None, reasons, settled: None, unknown: false };
            }
            Considered::Ask(_) => panic!("handled above"),
        };
        let step = |future: &Future<ChainState>, settled, unknown| Step {
            decision: Some(first.clone()),
            reasons: future.reasons.clone(),
            settled,
            unknown,
        };
        if self.paused || first.wished.settings.is_empty() {
            assert!(!self.paused || first.wished.settings.is_empty(), "it writes while paused");
            self.state = Some(first.wished.state.clone());
            return step(&first.wished, None, false);
        }
        let mut decision = first.clone();
        let mut patience = self.world.patience;
        for tries in 0..60 {
            let written = self.writes(&decision.wished);
            self.world.tried.push(self.world.seats());
            let mut after = Observation::new(self.world.now.clone());
            loop {
                let may_ask = patience > 0;
                let (before, seen, written) = (&seen, &after, &written);
                let carried = Carried { before, seen, written, tries, may_ask };
                let now = self.world.now.clone();
                let proof =
                    self.with_subject(|subject| Chain::prove(subject, &decision, &carried, &now));
                match proof {
                    Proof::Ask(questions) => {
                        assert!(may_ask, "it asks though there is no time");
                        patience -= 1;
                        let mut more = after.clone();
                        self.asked(questions, &mut more);
                        after = more;
                    }
                    Proof::Next(next) => {
                        decision = *next;
                        break;
                    }
                    Proof::Settle(future, settled) => {
                        self.writes(&future);
                        self.state = Some(future.state.clone());
                        return step(&future, Some(settled), false);
                    }
                    Proof::Unknown(_) => return step(&decision.wished, None, true),
                }
            }
        }
        panic!("it tries without end")
    }

    fn asked(&mut self, questions: Vec<Question>, seen: &mut Observation) {
        assert!(!questions.is_empty(), "it asks for nothing");
        for question in questions {
            let reading = self.world.answer(&question);
            let before = seen.readings.insert(question, reading);
            assert!(before.is_none(), "it asks again for what it was told");
        }
    }

    fn writes(&mut self, future: &Future<ChainState>) -> BTreeMap<Setting, Written> {
        let mut written = BTreeMap::new();
        for (setting, edit) in &future.settings {
            let (Setting::Selected { group, .. }, Value::Member(expected), Value::Member(to)) =
                (setting, &edit.expected, &edit.to)
            else {
                panic!("a group holds a member, not {edit:?}");
            };
            written.insert(setting.clone(), self.world.takes(group, expected, to));
        }
        written
    }

    /// Time passes, then one step.
    pub fn after(&mut self, seconds: u64) -> Step {
        self.world.later(seconds);
        self.step()
    }

    /// A person's `switch`. `None`: refused at once.
    pub fn switch(&mut self, target: &str, force: bool) -> Option<Step> {
        let granted = self.with_subject(|subject| Chain::switch(subject, target, force));
        let (state, pausing) = granted.ok()?;
        assert_eq!(pausing, Pausing::Keep);
        let before = self.state.replace(state);
        let step = self.step();
        let waits = self.state.as_ref().is_some_and(Chain::has_wish);
        if waits || step.unknown {
            self.state = before;
        }
        Some(step)
    }

    /// A person's `pause` or `resume` of a hop.
    pub fn part(&mut self, hop: &str, wish: PartWish) -> Result<(), String> {
        let now = self.world.now.clone();
        let state = self.with_subject(|subject| Chain::part(subject, hop, wish, &now))?;
        self.state = Some(state);
        Ok(())
    }

    /// A person's `resume` of all of it.
    pub fn resume(&mut self) {
        let state = self.state.as_ref().expect("it was stepped");
        self.state = Some(Chain::resumed(state, &self.world.now).expect("it may go on"));
        self.paused = false;
    }

    /// Where it stands.
    pub fn stands(&self) -> String {
        self.state.as_ref().map_or_else(|| "none".to_owned(), |state| state.stands.clone())
    }
}
