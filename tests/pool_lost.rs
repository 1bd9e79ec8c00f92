//! A pool whose state was lost: what the kernel still holds is held.

use crate::world;

use egressctl::kernel::nft::holds_clients;
use egressctl::machine::Machine as _;
use egressctl::observation::{Question, Reading};
use egressctl::pool::Pool;
use egressctl::pool::candidate::Candidate;
use egressctl::pool::state::{Egress, Mode};
use egressctl::simulate::packet::{Exit, Layers, new_flow};
use serde_json::json;
use std::collections::BTreeSet;
use world::{Endpoint, Lab, Source, Steps as _, Uplink, lab_of, policy};

const ALL: [&str; 3] = ["a", "b", "c"];

/// Two slots and three clients that are served.
fn served() -> Lab {
    let params = json!({
        "health_failures_before_down": 1, "local_repair_retest_count": 1, "direct_grace_sec": 60,
        "hmn_refresh_retry_interval_sec": 10, "bootstrap_retry_interval_sec": 10,
    });
    let mut lab = lab_of(policy(2, 3, &params), &ALL);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab
}

/// Both files of the state are gone, and what the pool has stored is there. Gives whether a state was made
/// anew, as the next run does first of all.
fn lose_the_state(lab: &mut Lab) -> bool {
    let stored: Vec<Candidate> =
        lab.state().pool.iter().flat_map(|pool| pool.candidates.to_vec()).collect();
    lab.state = None;
    let scope = Pool::scope(&lab.subject(), 0);
    let Ok(Reading::Kernel(kernel)) = lab.answer(&Question::Kernel(Box::new(scope))) else {
        panic!()
    };
    lab.state = Pool::rebuild(&lab.subject(), &kernel, &stored, &lab.now);
    lab.owned.interfaces = kernel.world.tunnels.keys().cloned().collect();
    lab.loaded = None;
    lab.state.is_some()
}

/// By which ways new flows of clients leave.
fn exits(lab: &Lab) -> BTreeSet<Exit> {
    let wan = lab.wan();
    let prefixes = lab.policy.client_prefixes();
    prefixes.into_iter().map(|net| new_flow(&lab.kernel, net, &wan, Layers::Both)).collect()
}

fn step(lab: &mut Lab) -> Mode {
    lab.later(10);
    lab.step();
    lab.state().mode
}

#[test]
fn after_a_reboot_the_barrier_holds_the_clients_until_a_slot_serves_them() {
    let mut lab = served();
    lab.reboot();
    assert!(lose_the_state(&mut lab), "the barrier says that they were taken over");
    lab.uplink = Uplink::Down;
    for _ in 0..12 {
        step(&mut lab);
        assert_eq!(exits(&lab), [Exit::Refused].into(), "{:?}", lab.state().mode);
        assert!(lab.barrier.is_some(), "the next boot is closed too");
    }
    lab.uplink = Uplink::Up;
    let mut steps = 0;
    while lab.state().mode != Mode::Normal {
        lab.later(10);
        let played = lab.step();
        assert!(!exits(&lab).contains(&Exit::Wan), "{:?} {:?}", lab.state().mode, played.reasons());
        steps += 1;
        assert!(steps < 12, "{:?}", lab.state().mode);
    }
    assert!(exits(&lab).iter().all(|exit| matches!(exit, Exit::Tunnel(_))), "{:?}", exits(&lab));
}

#[test]
fn with_no_endpoint_left_the_clients_of_a_lost_state_come_to_direct_and_back_as_any() {
    let mut lab = served();
    lab.reboot();
    assert!(lose_the_state(&mut lab));
    lab.set(&ALL, Endpoint::Dead);
    lab.source = Source::Unavailable;
    let mut steps = 0;
    while exits(&lab) != [Exit::Wan].into() {
        assert_eq!(exits(&lab), [Exit::Refused].into());
        step(&mut lab);
        steps += 1;
        assert!(steps < 40, "{:?}", lab.state().mode);
    }
    lab.set(&ALL, Endpoint::Alive);
    lab.source = Source::lists(&ALL);
    while lab.state().mode != Mode::Normal {
        step(&mut lab);
        steps += 1;
        assert!(steps < 80, "{:?}", lab.state().mode);
    }
    assert!(!exits(&lab).contains(&Exit::Wan));
}

#[test]
fn whoever_was_on_direct_stays_there_until_a_slot_serves() {
    let mut lab = served();
    lab.set(&ALL, Endpoint::Dead);
    lab.source = Source::Unavailable;
    while lab.state().mode != Mode::BootstrapRecovery {
        step(&mut lab);
    }
    lab.reboot();
    assert!(lose_the_state(&mut lab));
    assert_eq!(lab.state().mode, Mode::BootstrapRecovery);
    assert!(lab.state().egress.values().all(|egress| *egress == Egress::Direct));
    step(&mut lab);
    assert_eq!(exits(&lab), [Exit::Wan].into());
}

#[test]
fn a_table_that_holds_nobody_is_of_a_first_run() {
    let mut lab = served();
    lab.reboot();
    let table = lab.kernel.nft.as_mut().unwrap();
    assert!(holds_clients(&table.text));
    let (head, tail) = table.text.split_once("set clients {").unwrap();
    let (_, tail) = tail.split_once('\n').unwrap();
    table.text = format!("{head}set clients {{ type ipv4_addr; flags interval; }}\n{tail}");
    assert!(!holds_clients(&table.text));
    assert!(!lose_the_state(&mut lab));
}
