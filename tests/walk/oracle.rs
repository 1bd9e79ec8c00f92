//! Every answer that the world may give to what a step asks, and every way that its proof may go.
//!
//! A step is thought through as often as there are rows of answers. Nothing is remembered of a world
//! behind them: an endpoint may pass its test and fail in its slot, and the next time the other way
//! round.
//!
//! The same answer is not given twice under two names: where a slot passes in the first round, the
//! references say nothing that matters, and are down; where a tunnel is asked once more and answers,
//! they are down as well.
//!
//! **Invariant:** answers that the menu holds are all given; none is left out because it is unlikely.

use egressctl::machine::{Considered, Decision, Future, Machine as _};
use egressctl::names::Interface;
use egressctl::observation::{
    Asker, Expect, ListQuestion, ListReading, Observation, PageReading, Pages, PagesReading,
    Question, Reading, TrialReading, TrialResult,
};
use egressctl::plan::Check;
use egressctl::pool::candidate::{Candidate, Rejected};
use egressctl::pool::{Pool, PoolState};
use egressctl::simulate::{Lab, Outcome, Played};
use egressctl::time::Moment;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a probe by a slot may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Passes,
    Fails,
    /// Small pages pass, large ones do not.
    SmallOnly,
    /// It cannot be made.
    Unknown,
}

/// What a provider may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    Lists(Vec<&'static str>),
    /// This entry cannot be used, those can.
    ListsAllBut(&'static str, Vec<&'static str>),
    Silent,
    Refuses,
}

/// What a trial may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    Passes,
    Fails,
    /// The machine cannot make the device for it.
    Untried,
}

/// What is on the table in a walk.
#[derive(Clone, Debug)]
pub struct Menu {
    pub probes: Vec<Probe>,
    pub provider: Vec<Says>,
    pub trials: Vec<Tried>,
    /// How long a trial takes.
    pub trial_sec: u64,
    /// Whether what is loaded may fail its proof.
    pub proofs_fail: bool,
    /// Whether the uplink may be down, or fall at any moment of a step.
    pub wan_falls: bool,
    /// Whether a command may fail.
    pub commands_fail: bool,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// What was wished came true.
    True,
    /// Slots did not carry requests.
    Refused,
    /// The uplink fell while it was being proven.
    Held,
    /// A command failed.
    Undone,
}

/// One way that a step may go.
pub struct Leaf<'a> {
    pub before: Option<&'a PoolState>,
    pub decision: &'a Decision<PoolState>,
    pub seen: &'a Observation,
    pub end: End,
    /// The future that came true, when slots did not carry requests.
    pub refused: Option<Future<PoolState>>,
    pub failed: BTreeMap<Interface, String>,
    pub now: Moment,
    /// Whether all was well in it.
    pub well: bool,
}

impl<'a> Leaf<'a> {
    /// A step that was played and not walked.
    pub fn of(played: &'a Played, now: &Moment) -> Self {
        let (end, failed) = match &played.outcome {
            Outcome::Steady | Outcome::Applied => (End::True, BTreeMap::new()),
            Outcome::Refused(failed) => (End::Refused, failed.clone()),
            Outcome::Held => (End::Held, BTreeMap::new()),
            Outcome::Undone => (End::Undone, BTreeMap::new()),
        };
        Self {
            before: played.before.as_ref(),
            decision: &played.decision,
            seen: &played.seen,
            end,
            refused: played.refused.clone(),
            failed,
            now: now.clone(),
            well: false,
        }
    }

    pub fn after(&self) -> &PoolState {
        match self.end {
            End::True => &self.decision.wished.state,
            End::Refused => &self.refused.as_ref().unwrap().state,
            End::Held => &self.decision.held,
            End::Undone => &self.decision.undone,
        }
    }

    /// The future that came true, if one did.
    pub fn future(&self) -> Option<&Future<PoolState>> {
        match self.end {
            End::True => Some(&self.decision.wished),
            End::Refused => self.refused.as_ref(),
            End::Held | End::Undone => None,
        }
    }

    /// Whether a slot's own probe passed in this step.
    pub fn passed(&self, slot: &Interface) -> bool {
        let first = |asker| self.seen.pages(&asker).first().map(|(ask, seen)| seen.passes(ask));
        let again = self.seen.pages(&Asker::SlotAgain(slot.clone()));
        let again = again.into_iter().any(|(ask, seen)| seen.passes(ask));
        (first(Asker::Slot(slot.clone())) == Some(true) || again)
            && first(Asker::SlotLarge(slot.clone())) != Some(false)
    }

    /// Whether nothing could be said of a slot.
    pub fn cannot_be_judged(&self, slot: &Interface) -> bool {
        self.decision.wished.state.slots.get(slot).is_some_and(|slot| slot.unknown > 0)
    }

    /// The codes of the reasons of what came true; of a step that was taken back those of its wish.
    pub fn codes(&self) -> impl Iterator<Item = &str> {
        let future = self.future().unwrap_or(&self.decision.wished);
        future.reasons.iter().map(|reason| reason.code.as_str())
    }

    pub fn says(&self, code: &str) -> bool {
        self.codes().any(|said| said == code)
    }

    /// Whether the uplink was found down.
    pub fn is_held(&self) -> bool {
        self.end == End::Held
            || self.decision.wished.reasons.iter().any(|reason| reason.code == "wan-down")
    }
}

/// Every way that a step from this lab may go.
pub fn explore(lab: &mut Lab, menu: &Menu, each: &mut dyn FnMut(&Lab, &Leaf<'_>)) {
    let mut seen = Observation::new(lab.now.clone());
    think(lab, menu, &mut seen, true, each);
}

fn think(
    lab: &mut Lab,
    menu: &Menu,
    seen: &mut Observation,
    well: bool,
    each: &mut dyn FnMut(&Lab, &Leaf<'_>),
) {
    lab.tick();
    match Pool::consider(&lab.subject(), seen, &lab.now, true) {
        Considered::Ask(mut asked) => {
            assert!(!asked.is_empty(), "it asks for nothing");
            // Slots before references: what these say matters where no slot answers.
            asked.sort_by_key(|question| !is_slot(question));
            answer(lab, menu, &asked, seen, well, each);
        }
        Considered::Decide(decision) => prove(lab, menu, &decision, seen, well, each),
        Considered::Unable(why) => panic!("unable: {why:?}"),
    }
}

fn is_slot(question: &Question) -> bool {
    matches!(question, Question::Pages(Pages { asker, .. }) if !matches!(asker, Asker::Wan))
}

/// Gives each of the questions each answer.
fn answer(
    lab: &mut Lab,
    menu: &Menu,
    asked: &[Question],
    seen: &mut Observation,
    well: bool,
    each: &mut dyn FnMut(&Lab, &Leaf<'_>),
) {
    let Some((question, rest)) = asked.split_first() else {
        let now = lab.now.clone();
        // Whatever failed in this round failed after what passed.
        lab.now = lab.now.after(Duration::from_millis(3));
        if seen.trials().next().is_some() {
            lab.later(menu.trial_sec);
        }
        think(lab, menu, seen, well, each);
        lab.now = now;
        return;
    };
    assert!(!seen.readings.contains_key(question), "asked twice: {question:?}");
    for (reading, is_well) in answers(lab, menu, question, seen) {
        seen.readings.insert(question.clone(), reading);
        answer(lab, menu, rest, seen, well && is_well, each);
        seen.readings.remove(question);
    }
}

/// The answers to one question, and whether each is what a well world gives.
fn answers(
    lab: &mut Lab,
    menu: &Menu,
    question: &Question,
    seen: &Observation,
) -> Vec<(Reading, bool)> {
    match question {
        Question::Kernel(_) | Question::Names(_) => vec![(lab.answer(question).unwrap(), true)],
        Question::Pages(pages) => answers_of_pages(lab, menu, pages, seen),
        Question::List(list) => menu
            .provider
            .iter()
            .enumerate()
            .map(|(n, says)| {
                let at = lab.now.after(Duration::from_millis(2));
                (Reading::List { at, list: listed(lab, list, says) }, n == 0)
            })
            .collect(),
        Question::Trial(trial) => {
            let active = lab.kernel.tunnels.values().filter_map(|t| t.config.as_ref());
            assert!(
                active.into_iter().all(|config| config.file != trial.config.file),
                "(14) {} is tried while it is up",
                trial.name
            );
            let file = (trial.config.generation, trial.config.file.clone());
            assert!(lab.files.contains_key(&file), "(13) {file:?} is not there any more");
            menu.trials
                .iter()
                .map(|tried| {
                    let result = match tried {
                        Tried::Passes => TrialResult::Passed { latency_ms: 20 },
                        Tried::Fails => TrialResult::Failed { why: "no handshake".to_owned() },
                        Tried::Untried => TrialResult::NotTried { why: "no device".to_owned() },
                    };
                    let late = u64::from(*tried == Tried::Fails);
                    let at = lab.now.after(Duration::from_millis(1 + late));
                    (Reading::Trial(TrialReading { at, result }), *tried == Tried::Passes)
                })
                .collect()
        }
        Question::Standby(_)
        | Question::Tunnels(_)
        | Question::Core(_)
        | Question::Carried(_)
        | Question::Delays(_)
        | Question::Gost(_)
        | Question::Nodes(_)
        | Question::Outline(_)
        | Question::Setting(_)
        | Question::Wait { .. } => panic!("no pool of a walk asks for {question:?}"),
    }
}

fn answers_of_pages(
    lab: &Lab,
    menu: &Menu,
    pages: &Pages,
    seen: &Observation,
) -> Vec<(Reading, bool)> {
    let pass = (page(lab, pages, Probe::Passes), true);
    let fail = (page(lab, pages, Probe::Fails), false);
    match &pages.asker {
        Asker::Wan => {
            let some_slot = seen.readings.iter().any(|(question, reading)| {
                matches!((question, reading), (Question::Pages(asked), Reading::Pages(answer))
                    if asked.turn == pages.turn && is_slot(question) && answer.passes(asked))
            });
            match (menu.wan_falls, some_slot) {
                (true, true) => vec![(page_at(lab, pages, Probe::Fails, 1), true)],
                (true, false) => vec![pass, fail],
                (false, _) => vec![pass],
            }
        }
        // A witness, asked beside references that are asked once more.
        Asker::Slot(_) if pages.turn > 0 && menu.wan_falls => vec![pass, fail],
        Asker::Slot(_) if pages.turn > 0 => vec![pass],
        Asker::Slot(_) | Asker::SlotAgain(_) => menu
            .probes
            .iter()
            .filter(|probe| **probe != Probe::SmallOnly)
            .map(|probe| (page(lab, pages, *probe), *probe == Probe::Passes))
            .collect(),
        Asker::SlotLarge(slot) => {
            let small = seen.pages(&Asker::Slot(slot.clone()));
            let passes = small.iter().any(|(asked, answer)| answer.passes(asked));
            let lowered = lab.kernel.tunnels.get(slot).is_some_and(|t| t.mtu <= 1_280);
            match (passes, !lowered && menu.probes.contains(&Probe::SmallOnly)) {
                (true, true) => vec![pass, fail],
                (true, false) => vec![pass],
                (false, _) => vec![(fail.0, true)],
            }
        }
        Asker::WanExit | Asker::SlotExit(_) | Asker::Named(_) => {
            panic!("no policy of a walk asks for {:?}", pages.asker)
        }
    }
}

/// A page's answer. What fails, fails after what passes.
fn page(lab: &Lab, pages: &Pages, probe: Probe) -> Reading {
    page_at(lab, pages, probe, 1 + u64::from(probe == Probe::Fails))
}

fn page_at(lab: &Lab, pages: &Pages, probe: Probe, after_ms: u64) -> Reading {
    let page = match probe {
        Probe::Passes | Probe::SmallOnly => {
            let (status, bytes) = match &pages.expect {
                Expect::Bytes(least) => (200, *least),
                Expect::AnyAnswer | Expect::Status(_) | Expect::Address => (204, 0),
            };
            let body = String::new();
            PageReading::Answer { status, body, bytes, elapsed_ms: 20 }
        }
        Probe::Fails => PageReading::TimedOut,
        Probe::Unknown => PageReading::NotBindable("no".to_owned()),
    };
    let at = lab.now.after(Duration::from_millis(after_ms));
    Reading::Pages(PagesReading {
        at,
        pages: pages.pages.iter().map(|_| Some(page.clone())).collect(),
    })
}

fn listed(lab: &mut Lab, list: &ListQuestion, says: &Says) -> ListReading {
    let unavailable = |answered, retry_after_sec| ListReading::Unavailable {
        why: "no".to_owned(),
        answered,
        retry_after_sec,
    };
    let all = |names: &[&'static str]| -> Vec<Candidate> {
        names.iter().map(|name| crate::world::candidate(name, list.generation)).collect()
    };
    let (candidates, rejected) = match says {
        Says::Silent => return unavailable(false, None),
        Says::Refuses => return unavailable(true, None),
        Says::Lists(names) => (all(names), Vec::new()),
        Says::ListsAllBut(bad, good) => {
            let why = "line 2: PrivateKey is no key".to_owned();
            (all(good), vec![Rejected { name: (*bad).to_owned(), why }])
        }
    };
    lab.store(&candidates);
    ListReading::Listed { candidates: candidates.into(), rejected, validators: None }
}

/// Lets the proof of a decision go each way.
fn prove(
    lab: &Lab,
    menu: &Menu,
    decision: &Decision<PoolState>,
    seen: &Observation,
    well: bool,
    each: &mut dyn FnMut(&Lab, &Leaf<'_>),
) {
    let now = lab.now.clone();
    let leaf = |end, refused, failed, well| Leaf {
        before: lab.state.as_ref(),
        decision,
        seen,
        end,
        refused,
        failed,
        now: now.clone(),
        well,
    };
    each(lab, &leaf(End::True, None, BTreeMap::new(), well));
    if menu.commands_fail && decision.undone != decision.wished.state {
        each(lab, &leaf(End::Undone, None, BTreeMap::new(), false));
    }
    let proven: Vec<&Interface> = decision
        .checks
        .iter()
        .filter_map(|check| match check {
            Check::Answer { interface, .. } => Some(interface),
            Check::Route { .. } | Check::Outside { .. } => None,
        })
        .collect();
    if !menu.proofs_fail {
        return;
    }
    for bits in 1..1_u32 << proven.len() {
        let failed: BTreeMap<Interface, String> = proven
            .iter()
            .enumerate()
            .filter(|(n, _)| bits & (1 << n) != 0)
            .map(|(_, slot)| ((*slot).clone(), "no request was answered".to_owned()))
            .collect();
        let refused = Pool::refuse(&lab.subject(), decision, &failed, &lab.now);
        each(lab, &leaf(End::Refused, refused, failed.clone(), false));
        if menu.wan_falls && bits == 1 {
            each(lab, &leaf(End::Held, None, failed, false));
        }
    }
}
