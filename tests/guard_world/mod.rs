//! A small abstract world for the machine of a guard: a core with a selector and an automatic group,
//! members that pass or not, a clock.
//!
//! **Invariant:** the world answers questions and takes writes as the program's own step does it, and
//! changes only as a test says.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the world")]
#![allow(
    clippy::struct_excessive_bools,
    clippy::wildcard_enum_match_arm,
    reason = "a world is many things that are so or not, and a question that it does not know is a fault"
)]

use egressctl::guard::{Guard, GuardState};
use egressctl::machine::{
    Carried, Considered, Decision, Future, Machine, Owned, Pausing, Proof, ReasonText, Settled,
    Subject,
};
use egressctl::names::PolicyName;
use egressctl::observation::{
    Asker, ConfigReading, CoreConfig, CoreFault, CoreQuestion, CoreReading, CoreSeen, Delay,
    DelayReading, Group, GroupFault, Life, Observation, Outline, PageReading, PagesReading,
    Process, Program, Question, Reading, Traffic,
};
use egressctl::policy::{GuardPolicy, Policy};
use egressctl::setting::{Control, Setting, Value, Written};
use egressctl::time::Moment;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The automatic group, which is the core's default.
pub const AUTO: &str = "auto";
/// The member that it uses.
pub const PICK: &str = "de1";
/// The others.
pub const FAST: &str = "fi1";
pub const SLOW: &str = "us1";
/// A member that is not in every world.
pub const SLOWEST: &str = "jp1";

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Write {
    Takes,
    Refused,
    /// This member alone is.
    RefusedOf(&'static str),
    /// Somebody selects this meanwhile.
    Overtaken(&'static str),
    Unreadable,
}

/// The policy of a test, with these thresholds.
pub fn policy(params: &Json) -> GuardPolicy {
    let text = json!({
        "kind": "guard",
        "driver": { "clash": { "url": "http://127.0.0.1:9090" } },
        "group": "select", "automatic": AUTO, "proxy": "http://127.0.0.1:2080",
        "probe": { "urls": ["https://192.0.2.1/generate_204"] },
        "reference": { "urls": ["http://192.0.2.2/"] },
        "params": params,
    });
    let Policy::Guard(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a guard")
    };
    *policy
}

/// A policy that names nothing but the core's configuration, and what else is put there.
pub fn seeking(named: &Json) -> GuardPolicy {
    let mut text = json!({
        "kind": "guard", "driver": { "clash": { "config": "/etc/core.json" } },
        "probe": { "urls": ["https://192.0.2.1/generate_204"] },
    });
    for (key, value) in named.as_object().expect("an object") {
        text[key] = value.clone();
    }
    let Policy::Guard(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a guard")
    };
    *policy
}

/// What the core's own files say.
pub fn outline() -> Outline {
    let url = "http://127.0.0.1:9090".to_owned().try_into().expect("a URL");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Outline {
        program: Program::SingBox,
        read_in: "/etc/core.json".to_owned(),
        control: Ok(Control::Http(url)),
        exposed: None,
        has_secret: true,
        keeps_choices: false,
        proxies: vec!["http://127.0.0.1:2080".to_owned().try_into().expect("a proxy")],
        other_proxies: Vec::new(),
        selectors: [("select".to_owned(), names(&[AUTO, PICK, FAST, SLOW, "DIRECT"]))].into(),
        automatic: [AUTO.to_owned()].into(),
        default_way: Some("select".to_owned()),
    }
}

/// The world.
#[derive(Clone, Debug)]
pub struct World {
    pub now: Moment,
    pub core_up: bool,
    pub keeps: bool,
    /// Which run of the core it is.
    pub began: u64,
    /// The name of the group.
    pub group: String,
    pub selected: String,
    pub all: Vec<String>,
    pub wan: bool,
    /// Whether the uplink falls once something was written.
    pub wan_falls: bool,
    /// Whether the core's proxy is there.
    pub proxy: bool,
    /// Whether it is gone once something was written.
    pub proxy_falls: bool,
    /// Members by which requests pass. The automatic group does what its pick does.
    pub passes: BTreeSet<&'static str>,
    /// What the automatic group uses.
    pub uses: &'static str,
    /// Members that do not answer the core's own test.
    pub unmeasured: BTreeSet<&'static str>,
    pub write: Write,
    /// What was written, and whether it was.
    pub writes: Vec<String>,
    /// What the core's own files say.
    pub outline: Result<Outline, CoreFault>,
    /// What was selected when the round was asked first in a step.
    pub asked_by: Vec<String>,
    /// All that was asked, in any step.
    pub asked: Vec<Question>,
}

impl World {
    /// Everything is well.
    pub fn new() -> Self {
        let at = "2026-03-01T12:00:00Z".parse().expect("a time");
        Self {
            now: Moment { at, boot: "boot".into(), up_ms: 1_000_000 },
            core_up: true,
            keeps: false,
            began: 1,
            group: "select".to_owned(),
            selected: AUTO.to_owned(),
            all: [AUTO, PICK, FAST, SLOW, "DIRECT"].map(str::to_owned).into(),
            wan: true,
            wan_falls: false,
            proxy: true,
            proxy_falls: false,
            passes: BTreeSet::from([PICK, FAST, SLOW]),
            uses: PICK,
            unmeasured: BTreeSet::new(),
            write: Write::Takes,
            writes: Vec::new(),
            outline: Ok(outline()),
            asked_by: Vec::new(),
            asked: Vec::new(),
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
            self.selected = self.all.first().cloned().expect("a member");
        }
    }

    /// Whether a request passes by what is selected.
    pub fn is_served(&self) -> bool {
        let leaf = if self.selected == AUTO { self.uses } else { self.selected.as_str() };
        self.wan && self.core_up && self.proxy && self.passes.contains(leaf)
    }

    fn delay(&self, member: &str) -> Delay {
        let leaf = if member == AUTO { self.uses } else { member };
        if self.unmeasured.contains(leaf) {
            return Delay::Failed;
        }
        match leaf {
            FAST => Delay::Took(20),
            PICK => Delay::Took(30),
            SLOW => Delay::Took(200),
            SLOWEST => Delay::Took(300),
            other => panic!("{other} is measured"),
        }
    }

    pub fn answer(&mut self, question: &Question) -> Reading {
        self.asked.push(question.clone());
        match question {
            Question::Core(asked) => Reading::Core(Box::new(self.core(asked))),
            Question::Delays(asked) => {
                let of = |name: &String| (name.clone(), vec![self.delay(name)]);
                let members = asked.members.iter().map(of).collect();
                Reading::Delays(DelayReading { at: self.now.clone(), members })
            }
            Question::Pages(pages) => {
                let well = || PageReading::Answer {
                    status: 204,
                    body: String::new(),
                    bytes: 0,
                    elapsed_ms: 40,
                };
                let page = match &pages.asker {
                    Asker::Wan if self.wan => well(),
                    Asker::Named(_) if !self.proxy => {
                        PageReading::NoProxy("the proxy is not there".to_owned())
                    }
                    Asker::Named(_) => {
                        self.asked_by.push(self.selected.clone());
                        if self.is_served() { well() } else { PageReading::TimedOut }
                    }
                    _ => PageReading::TimedOut,
                };
                let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
                Reading::Pages(PagesReading { at: self.now.clone(), pages })
            }
            Question::Outline(_) => Reading::Outline(Box::new(self.outline.clone())),
            other => panic!("{other:?} is not asked by a guard"),
        }
    }

    fn core(&self, asked: &CoreQuestion) -> CoreReading {
        let group = |name: &String| match name.as_str() {
            name if name == self.group => Ok(Group {
                kind: "Selector".to_owned(),
                now: self.selected.clone(),
                all: self.all.clone(),
            }),
            AUTO => Ok(Group {
                kind: "URLTest".to_owned(),
                now: self.uses.to_owned(),
                all: [PICK, FAST, SLOW].map(str::to_owned).into(),
            }),
            "select" | "choose" => Err(GroupFault::Missing),
            "DIRECT" => Err(GroupFault::NoGroup { kind: "Direct".to_owned() }),
            _ => Err(GroupFault::NoGroup { kind: "VLESS".to_owned() }),
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
                traffic: Some(Ok(Traffic::default())),
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

    fn takes(&mut self, expected: &str, member: &str) -> Written {
        if self.selected == member {
            return Written::Done;
        }
        assert_eq!(expected, self.selected, "it expects what does not stand there");
        assert!(self.all.iter().any(|known| known == member), "{member} is no member");
        self.writes.push(member.to_owned());
        self.wan &= !self.wan_falls;
        self.proxy &= !self.proxy_falls;
        match self.write {
            Write::RefusedOf(one) if one != member => {
                member.clone_into(&mut self.selected);
                Written::Done
            }
            Write::Takes => {
                member.clone_into(&mut self.selected);
                Written::Done
            }
            Write::Refused | Write::RefusedOf(_) => {
                let why = "the core answers 400".to_owned();
                Written::Refused { why, retry_after_sec: None }
            }
            Write::Overtaken(other) => {
                other.clone_into(&mut self.selected);
                if other == member {
                    return Written::Done;
                }
                Written::Overtaken { found: Value::Member(other.to_owned()) }
            }
            Write::Unreadable => Written::Unreadable { why: "timed out".to_owned() },
        }
    }
}

/// A policy that is stepped in a world.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    pub policy: &'a GuardPolicy,
    pub state: Option<GuardState>,
    pub paused: bool,
    pub world: World,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was decided at first; nothing when the policy could not be served.
    pub decision: Option<Decision<GuardState>>,
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
    pub fn new(policy: &'a GuardPolicy) -> Self {
        Self { policy, state: None, paused: false, world: World::new() }
    }

    fn with_subject<T>(&self, paused: bool, work: impl FnOnce(&Subject<'_, Guard>) -> T) -> T {
        let name = PolicyName::try_from("home".to_owned()).expect("a name");
        work(&Subject {
            name: &name,
            policy: self.policy,
            state: self.state.as_ref(),
            paused,
            owned: &Owned::default(),
        })
    }

    /// One step, as the program makes it. With `commanded` a pause does not count.
    pub fn step_as(&mut self, commanded: bool) -> Step {
        let paused = self.paused && !commanded;
        self.world.asked_by.clear();
        let mut seen = Observation::new(self.world.now.clone());
        let mut rounds = 0;
        let considered = loop {
            let now = self.world.now.clone();
            match self.with_subject(paused, |subject| Guard::consider(subject, &seen, &now, true)) {
                Considered::Ask(questions) => {
                    assert!(!questions.is_empty(), "it asks for nothing");
                    for question in questions {
                        let reading = self.world.answer(&question);
                        let before = seen.readings.insert(question, reading);
                        assert!(before.is_none(), "it asks again for what it was told");
                    }
                }
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
        let step = |future: &Future<GuardState>, settled, unknown| Step {
            decision: Some(first.clone()),
            reasons: future.reasons.clone(),
            settled,
            unknown,
        };
        if paused || first.wished.settings.is_empty() {
            assert!(!paused || first.wished.settings.is_empty(), "it writes while it is paused");
            self.state = Some(first.wished.state.clone());
            return step(&first.wished, None, false);
        }
        let mut decision = first.clone();
        for tries in 0..20 {
            let written = self.writes(&decision.wished);
            let mut after = Observation::new(self.world.now.clone());
            loop {
                let carried = Carried {
                    before: &seen,
                    seen: &after,
                    written: &written,
                    tries,
                    may_ask: true,
                };
                let now = self.world.now.clone();
                let proof = self.with_subject(paused, |subject| {
                    Guard::prove(subject, &decision, &carried, &now)
                });
                match proof {
                    Proof::Ask(questions) => {
                        for question in questions {
                            let reading = self.world.answer(&question);
                            after.readings.insert(question, reading);
                        }
                    }
                    Proof::Next(next) => {
                        decision = *next;
                        break;
                    }
                    Proof::Settle(future, settled) => {
                        let mut left = (*future).clone();
                        left.settings.retain(|setting, edit| {
                            written.get(setting) != Some(&Written::Done)
                                || edit.to != Value::Member(self.world.selected.clone())
                        });
                        self.writes(&left);
                        self.state = Some(future.state.clone());
                        return step(&future, Some(settled), false);
                    }
                    Proof::Unknown(_) => return step(&decision.wished, None, true),
                }
            }
        }
        panic!("it tries without end")
    }

    fn writes(&mut self, future: &Future<GuardState>) -> BTreeMap<Setting, Written> {
        let write = |world: &mut World, setting: &Setting, expected: &Value, to: &Value| {
            let (Value::Member(expected), Value::Member(to)) = (expected, to) else {
                panic!("a group holds a member, not {to:?}");
            };
            (setting.clone(), world.takes(expected, to))
        };
        let world = &mut self.world;
        let all = future.settings.iter();
        all.map(|(setting, edit)| write(world, setting, &edit.expected, &edit.to)).collect()
    }

    /// One step of the timer.
    pub fn step(&mut self) -> Step {
        self.step_as(false)
    }

    /// Time passes, then one step.
    pub fn after(&mut self, seconds: u64) -> Step {
        self.world.later(seconds);
        self.step()
    }

    /// A person's `switch`. `None`: refused at once.
    pub fn switch(&mut self, target: &str, force: bool) -> Option<Step> {
        let granted = self.with_subject(false, |subject| Guard::switch(subject, target, force));
        let (state, pausing) = granted.ok()?;
        let before = self.state.replace(state);
        let step = self.step_as(true);
        let waits = self.state.as_ref().is_some_and(Guard::has_wish);
        if waits || step.unknown {
            self.state = before;
        } else if step.settled != Some(Settled::RolledBack) {
            self.paused = match pausing {
                Pausing::Pause => true,
                Pausing::Lift => false,
                Pausing::Keep => self.paused,
            };
        }
        Some(step)
    }

    /// A person's `resume`.
    pub fn resume(&mut self) {
        let state = self.state.as_ref().expect("it was stepped");
        self.state = Some(Guard::resumed(state, &self.world.now).expect("it may go on"));
        self.paused = false;
    }

    /// Where it stands.
    pub fn stands(&self) -> &'static str {
        self.state.as_ref().map_or("none", |state| state.mode.as_str())
    }
}
