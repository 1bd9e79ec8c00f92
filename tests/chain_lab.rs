//! Three hops of two nodes each, tunnel in tunnel: whichever node dies, and however, clients are served again by the
//! step that sees it, by the other node of that hop alone.

use crate::lab;

use lab::Lab;
use lab::chain::{Chain, HOPS, NAMES};
use lab::pool::{Step, differences};
use serde_json::Value;

/// One way in which a node dies.
type Death = (&'static str, fn(&Lab, usize));

const DEATHS: [Death; 3] = [
    ("drop", |lab, k| lab.drop(k)),
    ("stop", |lab, k| lab.stop(k)),
    ("forwards nothing", |lab, k| lab.blackhole(k)),
];

/// The row of a hop in status.
fn hop(status: &Value, name: &str) -> Value {
    let hops = status["hops"].as_array().cloned().unwrap_or_default();
    hops.into_iter().find(|hop| hop["hop"] == name).expect("the hop is there")
}

/// Case C21.
#[test]
fn any_node_may_die_in_any_way_and_its_backup_carries_within_the_step_that_sees_it() {
    let lab = Lab::builder().clients(2).endpoints(6).start();
    let chain = Chain::up(&lab, |_| {});
    assert_eq!(lab.exits(), [Some(5), Some(5)]);
    // By place: which node carries.
    let mut carries = [1, 3, 5];
    for place in 0..3 {
        for (how, kill) in DEATHS {
            for _ in 0..2 {
                let dies = carries[place];
                let backup = if dies % 2 == 1 { dies + 1 } else { dies - 1 };
                let when = format!("{how} n{dies} of {}", NAMES[place]);
                let before = chain.pool.tunnels();
                let mut flow = lab.client(1).tcp_flow().expect("a flow is opened");
                assert!(flow.ping().is_ok(), "before {when}");
                kill(&lab, dies);
                let step = chain.pool.step();
                let said = format!("{when}: {step:#?}\n{:#}", chain.pool.status());
                assert_eq!((step.code, step.word("outcome")), (Some(0), "applied"), "{said}");
                carries[place] = backup;
                assert_eq!(lab.exits(), [Some(carries[2]), Some(carries[2])], "{said}");
                assert_eq!(
                    hop(&chain.pool.status(), NAMES[place])["node"],
                    format!("n{backup}"),
                    "{said}"
                );
                chain.others_go_on(&before, HOPS[place]);
                if place < 2 {
                    assert!(flow.ping().is_ok(), "{when}: an open flow has the same exit still");
                }
                chain.nothing_leaked();
                lab.heal(dies);
            }
        }
    }
}

#[test]
fn clients_are_kept_in_while_a_hop_is_closed_and_all_of_it_is_made_again_and_given_back() {
    let lab = Lab::builder().clients(1).endpoints(6).start();
    let chain = Chain::new(&lab, |_| {});
    let untouched = chain.pool.kernel();
    let stands = |step: &Step, to: &str| assert_eq!(step.word("to"), to, "{step:#?}");
    let preferred = "entry PREFERRED, middle PREFERRED, exit PREFERRED";
    stands(&chain.pool.step(), preferred);
    assert_eq!(lab.client(1).endpoint(), Some(5));
    // Backups are tried on devices of their own, and nothing that serves is touched by that.
    let before = chain.pool.tunnels();
    let steady = chain.pool.step();
    assert!(steady.is_steady(), "{steady:#?}");
    chain.others_go_on(&before, "");
    let nodes = chain.pool.status()["hops"][1]["nodes"].clone();
    assert_eq!((&nodes[0]["health"], &nodes[1]["health"]), (&"healthy".into(), &"healthy".into()));
    let checked = lab.gw().egressctl(&["check", "home"]);
    assert!(checked.stdout.contains("probe middle/n3 passed: carries, "), "{}", checked.stdout);
    assert!(checked.stdout.contains("probe path passed: "), "{}", checked.stdout);
    let backup = |line: &str| {
        line.contains("probe middle/n4 passed: ") && line.ends_with(" ms, at its last test")
    };
    assert!(checked.stdout.lines().any(backup), "{}", checked.stdout);
    // No node of a hop passes.
    lab.drop(3);
    lab.drop(4);
    stands(&chain.pool.step(), "entry PREFERRED, middle CLOSED, exit PREFERRED");
    assert_eq!(lab.client(1).endpoint(), None);
    assert_eq!(chain.pool.asked().0, Some(2), "{:#}", chain.pool.status());
    let checked = lab.gw().egressctl(&["check", "home"]);
    assert!(
        checked.stdout.contains("path-broken: the path breaks at middle"),
        "{}",
        checked.stdout
    );
    lab.heal(4);
    stands(&chain.pool.step(), "entry PREFERRED, middle BACKUP, exit PREFERRED");
    assert_eq!(lab.client(1).endpoint(), Some(5));
    // A stranger removes a tunnel and every rule: nothing gets out by the WAN meanwhile.
    lab.gw().ip("link del ch1");
    lab.gw().delete_rules();
    assert_eq!(lab.client(1).endpoint(), None);
    let _mended = chain.pool.step();
    assert_eq!(lab.client(1).endpoint(), Some(5));
    chain.nothing_leaked();
    lab.gw().reboot();
    let _made = chain.pool.step();
    assert_eq!(lab.client(1).endpoint(), Some(5));
    chain.nothing_leaked();
    let down = lab.gw().egressctl(&["down", "home"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    assert_eq!(differences(&untouched, &chain.pool.kernel()), [""; 0]);
}
