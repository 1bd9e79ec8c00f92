//! Every step on a pool's way is cut off in each of its phases, with the real kernel: a later one ends what it began, and nothing leaks.

use crate::fakes;
use crate::lab;

use fakes::Fakes;
use lab::gateway::{Outcome, program};
use lab::pool::{Pool, Step};
use lab::{Lab, names, space};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where in a step the run is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All is decided, and the journal is not there yet.
    BeforeJournal,
    /// The journal is there, and the first command that changes something does not come. What is killed
    /// between two of them is in `pool_crash`.
    BeforeApplying,
    /// All is changed and proven, and the state does not say so yet.
    BeforeCommit,
    /// The state says so, and the journal is still there.
    AfterCommit,
}

/// A step that is killed there; one that never comes there ends by itself.
fn cut(lab: &Lab, fakes: &Fakes, phase: Phase) -> Outcome {
    let (file, call) = match phase {
        Phase::BeforeJournal => ("journal.json", "rename,renameat,renameat2"),
        Phase::BeforeApplying => return fakes.run(lab.gw(), "kill:1", &["step", "home", "--json"]),
        Phase::BeforeCommit => ("state.json", "rename,renameat,renameat2"),
        Phase::AfterCommit => ("journal.json", "unlink,unlinkat"),
    };
    let mut command = lab.gw().command("/usr/bin/strace");
    command.args(["-f", "-b", "execve", "-qq", "-o", "/dev/null", "-P"]);
    command.arg(lab.gw().state_dir().join("home").join(file));
    command.arg("-e").arg(format!("inject={call}:signal=KILL:when=1"));
    command.arg("--").arg(program()).arg("--policy-dir").arg(lab.gw().policy_dir());
    command.arg("--state-dir").arg(lab.gw().state_dir()).args(["step", "home", "--json"]);
    let outcome = lab.gw().finish(command);
    fakes::no_panic(&outcome);
    outcome
}

/// Cuts each step that comes to that phase and makes it again, until the pool stands there; gives how many
/// were cut.
fn until(pool: &Pool<'_>, fakes: &Fakes, phase: Phase, there: &str) -> usize {
    let (mut cuts, mut went) = (0, Vec::new());
    for _ in 0..14 {
        let mut step = Step::of(cut(pool.lab, fakes, phase));
        let is_cut = step.code.is_none();
        if is_cut {
            cuts += 1;
            step = pool.step();
            // One that undoes leaves the work to the next.
            if step.code == Some(5) {
                step = pool.step();
            }
        }
        assert!(matches!(step.code, Some(0 | 4)), "{phase:?}: {step:#?}, {went:#?}");
        // A run that is cut after its commit has come there, and the next goes on from there.
        let is_there = step.word("to") == there || is_cut && step.word("from") == there;
        went.push(step);
        if is_there {
            return cuts;
        }
    }
    panic!("{phase:?}: {there} is not reached: {went:#?}");
}

/// Clients ask all the while.
fn while_clients_ask(lab: &Lab, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in lab.clients() {
            let over = &over;
            scope.spawn(move || {
                let mut flow = client.udp_flow();
                while !over.load(Ordering::Relaxed) {
                    let _answer = (client.exit(), flow.ping());
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        result
    })
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// The first run, a move, a repair with its quarantine, a refresh, Direct, and the way back.
fn all_the_way(phase: Phase) {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let fakes = Fakes::new(&lab);
    let mut policy = fakes::small_policy(&lab);
    policy["params"]["local_repair_retest_count"] = json!(2);
    policy["params"]["direct_grace_sec"] = json!(0);
    lab.gw().policy("home", &policy);
    let pool = Pool { lab: &lab };
    let mut cuts = until(&pool, &fakes, phase, "NORMAL");
    pool.serves(2);
    let mark = lab.capture.mark();
    while_clients_ask(&lab, || {
        let dead = pool.endpoints()["vpn1"];
        lab.portal(dead);
        cuts += until(&pool, &fakes, phase, "LOCAL_REPAIR");
        assert!(!pool.serves_some().contains(&dead), "{phase:?}");
        cuts += until(&pool, &fakes, phase, "NORMAL");
        assert!(!pool.serves(2).contains(&dead), "{phase:?}");
        assert_eq!(pool.status()["pool"]["quarantined"], 1, "{phase:?}");
        lab.heal(dead);
        assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
        cuts += until(&pool, &fakes, phase, "NORMAL");
        pool.serves(2);
        assert_eq!(lab.capture.leaks_since(mark), [], "{phase:?}");
    });
    (1..=4).for_each(|k| lab.drop(k));
    cuts += until(&pool, &fakes, phase, "DIRECT_EMERGENCY");
    assert_eq!(lab.client(1).exit(), Some(names::WAN.to_string()), "{phase:?}");
    (1..=4).for_each(|k| lab.heal(k));
    cuts += until(&pool, &fakes, phase, "NORMAL");
    pool.serves(2);
    let over = space::wait_until(Duration::from_secs(20), || !lab.web_owes(names::WAN));
    assert!(over, "the web has nothing more to say to the WAN");
    let mark = lab.capture.mark();
    while_clients_ask(&lab, || std::thread::sleep(Duration::from_millis(300)));
    assert_eq!(lab.capture.leaks_since(mark), [], "{phase:?}");
    eprintln!("{phase:?}: {cuts} steps were cut");
    assert!(cuts >= 4, "{phase:?}: {cuts} cuts met a step there");
}

#[test]
fn cut_before_the_journal_is_there() {
    all_the_way(Phase::BeforeJournal);
}

#[test]
fn cut_when_the_journal_is_there_and_nothing_changed() {
    all_the_way(Phase::BeforeApplying);
}

#[test]
fn cut_when_all_is_proven_and_nothing_remembered() {
    all_the_way(Phase::BeforeCommit);
}

#[test]
fn cut_when_it_is_remembered_and_the_journal_still_there() {
    all_the_way(Phase::AfterCommit);
}
