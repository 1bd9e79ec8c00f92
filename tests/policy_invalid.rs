//! A policy that was edited into something invalid: its clients are looked after by the last good one, and everybody is told.

use crate::lab;

use lab::Lab;
use lab::pool::{Pool, Step, differences};
use serde_json::json;

/// The codes of what a step gave as its reasons.
fn reasons(step: &Step) -> Vec<&str> {
    let all = step.report["reasons"].as_array().expect("a report has reasons");
    all.iter().filter_map(|reason| reason["code"].as_str()).collect()
}

#[test]
fn the_last_good_policy_goes_on_and_says_so_until_the_file_is_mended() {
    let lab = Lab::builder().endpoints(7).start();
    let bare = Pool { lab: &lab }.kernel();
    let pool = Pool::up(&lab, |_| {});
    pool.serves(5);
    let file = lab.gw().policy_dir().join("home.json");
    let good = std::fs::read_to_string(&file).unwrap();

    std::fs::write(&file, good.replace("\"slots\"", "\"slotz\"")).unwrap();
    let steady = pool.step();
    assert_eq!(steady.went(), (Some(2), "NORMAL", "NORMAL"), "{steady:#?}");
    assert!(reasons(&steady).contains(&"policy-invalid"), "{steady:#?}");
    assert!(steady.stderr.contains("unknown key \"slotz\""), "{}", steady.stderr);

    let dead = pool.endpoints()["vpn2"];
    lab.drop(dead);
    let mut last = pool.step();
    for _ in 0..8 {
        if last.word("to") == "NORMAL" && !pool.endpoints().values().any(|k| *k == dead) {
            break;
        }
        last = pool.step();
    }
    assert_eq!(last.code, Some(2), "{last:#?}");
    assert!(!pool.serves(5).contains(&dead), "the dead endpoint was replaced");
    let (code, status) = pool.asked();
    assert_eq!((code, &status["reasons"][0]["code"]), (Some(3), &json!("policy-invalid")));
    let text = lab.gw().egressctl(&["status", "home"]).stdout;
    assert!(text.contains("the last good policy goes on until it is mended"), "{text}");

    std::fs::write(&file, &good).unwrap();
    let mended = pool.step();
    assert_eq!(mended.code, Some(0), "{mended:#?}");
    assert!(!reasons(&mended).contains(&"policy-invalid"), "{mended:#?}");

    std::fs::write(&file, "{").unwrap();
    let down = lab.gw().egressctl(&["down", "home"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    assert_eq!(differences(&bare, &pool.kernel()), [""; 0], "it can be taken down all the same");
    pool.nothing_leaked();
}

#[test]
fn a_policy_that_was_never_whole_makes_nothing() {
    let lab = Lab::builder().clients(1).endpoints(2).start();
    let pool = Pool::new(&lab, |policy| policy["slots"] = json!({ "interfaces": [] }));
    let bare = pool.kernel();
    let refused = lab.gw().egressctl(&["step", "home"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(refused.stderr.contains("slots.interfaces names 0 interfaces"), "{}", refused.stderr);
    assert_eq!(differences(&bare, &pool.kernel()), [""; 0]);
    assert!(!lab.gw().state_dir().join("home").exists());
}
