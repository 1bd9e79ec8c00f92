//! A small abstract world for the machine of a selector: a core with a group, two channels, a clock.
//!
//! **Invariant:** the world answers questions and takes writes as the program's own step does it, and
//! changes only as a test says.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the world")]

use egressctl::machine::{
    Carried, Considered, Decision, Future, Machine, Owned, Proof, ReasonText, Settled, Subject,
};
use egressctl::names::PolicyName;
use egressctl::observation::{
    Asker, ConfigReading, CoreConfig, CoreFault, CoreQuestion, CoreReading, CoreSeen, Flow, Group,
    Life, Observation, PageReading, PagesReading, Process, Program, Question, Reading, Traffic,
};
use egressctl::policy::{Policy, SelectorPolicy};
use egressctl::selector::Selector;
use egressctl::selector::state::SelectorState;
use egressctl::setting::{Setting, Value, Written};
use egressctl::time::Moment;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The members of the group, the core's default first.
pub const PRIMARY: &str = "channel-primary";
pub const RESERVE: &str = "channel-reserve";
pub const THIRD: &str = "channel-third";

/// How a channel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    Well,
    Dead,
    NoProxy,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Write {
    Takes,
    Refused,
    /// Somebody selects the third member meanwhile.
    Overtaken,
    Unreadable,
}

/// The policy of a test, with these thresholds.
pub fn policy(params: &Json, cut: &str) -> SelectorPolicy {
    let text = json!({
        "kind": "selector",
        "driver": { "clash": { "url": "http://127.0.0.1:9090", "selector": "channel-selector", "cut": cut } },
        "primary": { "member": PRIMARY, "proxy": "http://127.0.0.1:2081" },
        "reserve": { "member": RESERVE, "proxy": "http://127.0.0.1:2082" },
        "probe": { "urls": ["http://192.0.2.1/generate_204"] },
        "wan": { "urls": ["http://192.0.2.2/"] },
        "params": params,
    });
    let Policy::Selector(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a selector")
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
    pub received: u64,
    pub selected: String,
    pub wan: bool,
    pub primary: Answer,
    pub reserve: Answer,
    /// What both say when they are asked again in the same step.
    pub again: Option<[Answer; 2]>,
    /// Bytes in a second that clients receive, and do between the two samples before a switch.
    pub rate: u64,
    pub sample_rate: u64,
    pub write: Write,
    /// What was written, and whether it was.
    pub writes: Vec<String>,
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
            received: 5_000,
            selected: PRIMARY.to_owned(),
            wan: true,
            primary: Answer::Well,
            reserve: Answer::Well,
            again: None,
            rate: 0,
            sample_rate: 0,
            write: Write::Takes,
            writes: Vec::new(),
        }
    }

    /// Time passes, and what flows, flows.
    pub fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
        self.received += self.rate * seconds;
    }

    /// The core begins anew; without a cache it forgets what was selected.
    pub fn restart(&mut self) {
        self.began += 1;
        self.received = 10;
        if !self.keeps {
            PRIMARY.clone_into(&mut self.selected);
        }
    }

    pub fn answer(&mut self, question: &Question) -> Reading {
        match question {
            Question::Core(asked) => Reading::Core(Box::new(self.core(asked))),
            Question::Pages(pages) => {
                let turn = usize::try_from(pages.turn).unwrap();
                let answer = match &pages.asker {
                    Asker::Wan if self.wan => Answer::Well,
                    Asker::Wan => Answer::Dead,
                    Asker::Named(name) => {
                        let first = [self.primary, self.reserve];
                        let both = if turn == 0 { first } else { self.again.unwrap_or(first) };
                        both[usize::from(name == "reserve")]
                    }
                    other => panic!("{other:?} has no business here"),
                };
                let page = match answer {
                    Answer::Well => PageReading::Answer {
                        status: 204,
                        body: String::new(),
                        bytes: 0,
                        elapsed_ms: 40,
                    },
                    Answer::Dead => PageReading::TimedOut,
                    Answer::NoProxy => PageReading::NoProxy("the proxy is not there".to_owned()),
                };
                let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
                Reading::Pages(PagesReading { at: self.now.clone(), pages })
            }
            Question::Wait { millis, .. } => {
                self.now = self.now.after(Duration::from_millis(*millis));
                self.received += self.sample_rate * millis / 1_000;
                Reading::Waited
            }
            other => panic!("{other:?} is not asked by a selector of a core"),
        }
    }

    fn core(&self, asked: &CoreQuestion) -> CoreReading {
        let core = if self.core_up {
            Ok(CoreSeen {
                program: Program::SingBox,
                version: "sing-box 1.14.4".to_owned(),
                life: Life {
                    process: Some(Process { boot: "boot".to_owned(), pid: 7, began: self.began }),
                    totals: Some((self.received, 0)),
                },
                groups: BTreeMap::from([(
                    "channel-selector".to_owned(),
                    Ok(Group {
                        kind: "Selector".to_owned(),
                        now: self.selected.clone(),
                        all: [PRIMARY, RESERVE, THIRD].map(str::to_owned).into(),
                    }),
                )]),
                traffic: Some(Ok(Traffic {
                    received: self.received,
                    sent: 0,
                    flows: vec![Flow::default()],
                })),
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
}

/// A policy that is stepped in a world.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    pub policy: &'a SelectorPolicy,
    pub state: Option<SelectorState>,
    pub paused: bool,
    pub world: World,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was decided; nothing when the policy could not be served.
    pub decision: Option<Decision<SelectorState>>,
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
    pub fn new(policy: &'a SelectorPolicy) -> Self {
        Self { policy, state: None, paused: false, world: World::new() }
    }

    /// What the machine is asked about.
    pub fn with_subject<T>(
        &self,
        paused: bool,
        work: impl FnOnce(&Subject<'_, Selector>) -> T,
    ) -> T {
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
        let mut seen = Observation::new(self.world.now.clone());
        let mut rounds = 0;
        let considered = loop {
            let now = self.world.now.clone();
            match self
                .with_subject(paused, |subject| Selector::consider(subject, &seen, &now, true))
            {
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
        let decision = match considered {
            Considered::Decide(decision) => *decision,
            Considered::Unable(reasons) => {
                return Step { decision: None, reasons, settled: None, unknown: false };
            }
            Considered::Ask(_) => panic!("handled above"),
        };
        let step = |future: &Future<SelectorState>, settled, unknown| Step {
            decision: Some(decision.clone()),
            reasons: future.reasons.clone(),
            settled,
            unknown,
        };
        if paused {
            assert!(decision.wished.settings.is_empty(), "it writes while it is paused");
            self.state = Some(decision.wished.state.clone());
            return step(&decision.wished, None, false);
        }
        if decision.wished.settings.is_empty() {
            self.state = Some(decision.wished.state.clone());
            self.paused |= decision.wished.pauses;
            return step(&decision.wished, None, false);
        }
        let written: BTreeMap<Setting, Written> = decision
            .wished
            .settings
            .iter()
            .map(|(setting, edit)| {
                let Value::Member(expected) = &edit.expected else { panic!("{edit:?}") };
                let Value::Member(to) = &edit.to else { panic!("{edit:?}") };
                assert_eq!(*expected, self.world.selected, "it expects what does not stand there");
                (setting.clone(), self.world.takes(to))
            })
            .collect();
        let after = Observation::new(self.world.now.clone());
        let carried =
            Carried { before: &seen, seen: &after, written: &written, tries: 0, may_ask: true };
        let now = self.world.now.clone();
        match self
            .with_subject(paused, |subject| Selector::prove(subject, &decision, &carried, &now))
        {
            Proof::Settle(future, settled) => {
                self.state = Some(future.state.clone());
                self.paused |= future.pauses;
                step(&future, Some(settled), false)
            }
            Proof::Unknown(_) => step(&decision.wished, None, true),
            other @ (Proof::Ask(_) | Proof::Next(_)) => panic!("{other:?}"),
        }
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
        let granted = self.with_subject(false, |subject| Selector::switch(subject, target, force));
        let (state, _) = granted.ok()?;
        let before = self.state.replace(state);
        let step = self.step_as(true);
        let waits = self.state.as_ref().is_some_and(Selector::has_wish);
        if waits || step.unknown {
            self.state = before;
        } else if step.settled != Some(Settled::RolledBack) {
            self.paused = true;
        }
        Some(step)
    }

    /// A person's `resume`. False: refused.
    pub fn resume(&mut self) -> bool {
        let state = self.state.as_ref().expect("it was stepped");
        match Selector::resumed(state, &self.world.now) {
            Ok(state) => {
                self.state = Some(state);
                self.paused = false;
                true
            }
            Err(_) => false,
        }
    }

    /// Where it stands.
    pub fn stands(&self) -> &'static str {
        self.state.as_ref().map_or("none", |state| state.mode.as_str())
    }
}

impl World {
    fn takes(&mut self, member: &str) -> Written {
        self.writes.push(member.to_owned());
        match self.write {
            Write::Takes => {
                member.clone_into(&mut self.selected);
                Written::Done
            }
            Write::Refused => {
                let why = "the core answers 400".to_owned();
                Written::Refused { why, retry_after_sec: None }
            }
            Write::Overtaken => {
                THIRD.clone_into(&mut self.selected);
                Written::Overtaken { found: Value::Member(THIRD.to_owned()) }
            }
            Write::Unreadable => Written::Unreadable { why: "timed out".to_owned() },
        }
    }
}
