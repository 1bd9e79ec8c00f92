//! A step that is killed at any moment harms nobody: the next undoes what it had begun, and then the work is done.

use crate::lab;

use lab::Lab;
use lab::pool::{Pool, SLOTS, Step};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ends the threads of a test also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts a step and kills it after so many milliseconds.
fn kill_a_step(lab: &Lab, after: u64) {
    let mut child = lab.gw().spawn_egressctl(&["step", "home"]);
    std::thread::sleep(Duration::from_millis(after));
    let _gone = child.kill();
    let _code = child.wait().expect("a child can be waited for");
}

/// Steps until all is well; whether the first of them had a journal to undo.
fn recovers(pool: &Pool<'_>, after: u64) -> bool {
    let went = pool.settles(8);
    let codes: Vec<_> = went.iter().map(|step| step.code).collect();
    assert!(codes.iter().skip(1).all(|code| *code == Some(0)), "after {after} ms: {went:#?}");
    assert!(matches!(codes[0], Some(0 | 5)), "after {after} ms: {went:#?}");
    codes[0] == Some(5)
}

#[test]
fn a_step_that_is_killed_half_way_leaks_nothing_and_the_next_recovers() {
    let lab = Lab::builder().endpoints(7).start();
    let pool = Pool::up(&lab, |policy| {
        policy["clients"].as_array_mut().unwrap().push(json!("user:daemon"));
        policy["params"]["flap_limit"] = json!(99);
    });
    let (homes, endpoints) = (pool.serves(5), pool.endpoints());
    let stop = AtomicBool::new(false);
    let mut recovered = 0;
    std::thread::scope(|scope| {
        let asking = |k: usize| {
            let client = lab.client(k);
            let mut udp = client.udp_flow();
            while !stop.load(Ordering::Relaxed) {
                let _answer = (client.exit(), udp.ping(), client.get6());
            }
        };
        scope.spawn(move || asking(1));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _answer = lab.gw().exit_as("daemon");
            }
        });
        let stopping = Stop(&stop);
        for (round, after) in [30, 50, 70, 90, 110, 140, 180, 230, 300, 400].into_iter().enumerate()
        {
            // Every other time the rules or nft have to be made again, too: a long plan to die in.
            lab.gw().space().batch("link del vpn2\nlink del vpn3\n");
            if round % 2 == 0 {
                lab.gw().flush_nft();
            } else {
                lab.gw().delete_rules();
            }
            kill_a_step(&lab, after);
            recovered += usize::from(recovers(&pool, after));
            assert_eq!(
                (pool.serves(5), pool.endpoints()),
                (homes.clone(), endpoints.clone()),
                "after {after} ms"
            );
            assert_eq!(lab.capture.leaks(), [], "after {after} ms");
        }
        drop(stopping);
    });
    eprintln!("{recovered} of 10 kills left a journal");
    assert!(recovered > 0, "no kill met a change");
    pool.nothing_leaked();
}

#[test]
fn a_repair_that_is_killed_is_done_by_a_later_step_and_hurts_no_other_slot() {
    let lab = Lab::builder().endpoints(8).start();
    let pool = Pool::up(&lab, |_| {});
    pool.serves(5);
    for after in [20, 60, 120] {
        let (before, dead) = (pool.tunnels(), pool.endpoints()["vpn3"]);
        // A portal answers at once, so that the step has no second in which it only waits.
        lab.portal(dead);
        pool.goes("NORMAL", "NORMAL");
        pool.goes("NORMAL", "LOCAL_REPAIR");
        pool.serves(4);
        kill_a_step(&lab, after);
        assert!(!pool.serves_some().contains(&dead), "after {after} ms");
        recovers(&pool, after);
        assert!(!pool.serves(5).contains(&dead), "after {after} ms");
        pool.others_go_on(&before, &["vpn3"]);
    }
    pool.nothing_leaked();
}

#[test]
fn a_first_run_that_is_killed_leaves_nothing_that_the_next_cannot_use_or_remove() {
    let lab = Lab::builder().endpoints(6).start();
    let pool = Pool::new(&lab, |_| {});
    let bare = lab.gw().devices();
    for after in [40, 90, 150, 220, 300, 400, 550] {
        kill_a_step(&lab, after);
        let went: Vec<Step> = (0..4).map(|_| pool.step()).collect();
        assert!(matches!(went[0].code, Some(0 | 5)), "after {after} ms: {went:#?}");
        let last = &went[3];
        assert!(last.is_steady() && last.word("to") == "NORMAL", "after {after} ms: {went:#?}");
        pool.serves(5);
        let mut expected = bare.clone();
        expected.extend(SLOTS.map(str::to_owned));
        assert_eq!(lab.gw().devices(), expected, "after {after} ms");
        assert_eq!(lab.gw().daemons().len(), 5, "after {after} ms");
        let down = lab.gw().egressctl(&["down", "home"]);
        assert_eq!((down.code, lab.gw().devices()), (Some(0), bare.clone()), "after {after} ms");
        std::fs::remove_dir_all(lab.gw().state_dir().join("home")).expect("there is a state");
    }
}
