//! What may change under a pool between two steps: its neighbours, its devices, its clock, its policy.

use crate::world;

use egressctl::iproute::Route;
use egressctl::kernel::diff::diff;
use egressctl::kernel::{World, read};
use egressctl::machine::{Cut, Machine as _, Subject};
use egressctl::names::Table;
use egressctl::pool::Pool;
use egressctl::pool::state::{Content, Egress, Mode};
use egressctl::simulate::{apply, same_world};
use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};
use world::{Endpoint, Lab, Source, Steps as _, Uplink, interface, lab_of, policy, policy_by};

fn normal(slots: usize, names: &[&'static str]) -> Lab {
    let mut lab = lab_of(policy(slots, 4, &json!({ "local_repair_retest_count": 1 })), names);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab
}

fn subject(lab: &Lab) -> Subject<'_, Pool> {
    Subject {
        name: &lab.name,
        policy: &lab.policy,
        state: lab.state.as_ref(),
        paused: false,
        owned: &lab.owned,
    }
}

fn is_direct(lab: &Lab) -> bool {
    lab.state().egress.values().any(|egress| *egress == Egress::Direct)
}

#[test]
fn a_neighbours_routes_with_the_same_number_are_not_ours() {
    let lab = normal(2, &["a", "b", "c"]);
    let ours = lab.kernel.routes.iter().find(|route| route.dev.is_some()).unwrap();
    let theirs = Route { dev: Some("w1".to_owned()), table: Table(301), ..ours.clone() };
    let scope = Pool::scope(&subject(&lab), 0);
    let routes = lab.kernel.routes.iter().cloned().chain([theirs]).collect();
    let seen = read::reading(&scope, read::Printed { routes, ..read::Printed::default() });
    assert_eq!(seen.world.routes, lab.kernel.routes);
}

#[test]
fn a_setting_of_a_device_that_is_gone_is_not_given_back() {
    let lab = normal(2, &["a", "b", "c"]);
    let mut wished = World::default();
    wished.sysctls.insert("net/ipv4/conf/ppp77/src_valid_mark".to_owned(), "0".to_owned());
    assert_eq!(diff(&World::default(), &wished, &Pool::means(&lab.policy)), []);
}

#[test]
fn the_undo_of_a_removed_tunnel_brings_back_its_routes_and_settings() {
    let lab = normal(2, &["a", "b", "c"]);
    let gone = interface("vpn2");
    let mut wished = lab.kernel.clone();
    wished.tunnels.remove(&gone);
    wished.routes.retain(|route| route.dev.as_deref() != Some(gone.as_str()));
    wished.sysctls.retain(|path, _| !path.contains(gone.as_str()));
    let plan = diff(&lab.kernel, &wished, &Pool::means(&lab.policy));
    let mut world = lab.kernel.clone();
    for action in plan.iter().map(|step| &step.action) {
        apply(&mut world, action, &lab.files).unwrap();
    }
    assert_eq!(same_world(&world, &wished), Ok(()));
    for action in plan.iter().rev().flat_map(|step| &step.undo) {
        apply(&mut world, action, &lab.files).unwrap();
    }
    assert_eq!(same_world(&world, &lab.kernel), Ok(()));
}

#[test]
fn a_wish_that_could_not_be_carried_out_does_not_come_true_another_day() {
    let mut lab = normal(2, &["a", "b", "c"]);
    let (state, _) = Pool::switch(&subject(&lab), "direct", true).unwrap();
    lab.state = Some(state);
    lab.uplink = Uplink::Down;
    lab.later(10);
    lab.step();
    assert!(Pool::has_wish(lab.state()) && !is_direct(&lab), "nothing is moved with the WAN down");
    lab.uplink = Uplink::Up;
    lab.state = Some(Pool::resumed(lab.state(), &lab.now).unwrap());
    for _ in 0..4 {
        lab.later(10);
        lab.step();
        assert!(!is_direct(&lab));
    }
}

#[test]
fn a_clock_that_comes_up_behind_does_not_keep_clients_on_direct() {
    let mut lab = normal(1, &["a"]);
    lab.set(&["a"], Endpoint::Dead);
    for _ in 0..10 {
        lab.later(10);
        lab.step();
    }
    assert!(lab.state().mode.is_direct() && is_direct(&lab));
    lab.set(&["a"], Endpoint::Alive);
    lab.now.boot = "next".into();
    lab.now.up_ms = 20_000;
    lab.now.at = "2025-06-01T00:00:00Z".parse().unwrap();
    for _ in 0..4 {
        lab.later(60);
        lab.step();
    }
    assert_eq!(lab.state().mode, Mode::Normal);
}

#[test]
fn a_refresh_waits_for_what_a_reboot_took_away() {
    let mut lab = normal(2, &["a", "b", "c"]);
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    lab.later(10);
    assert_eq!(lab.step().after.mode, Mode::FullPoolRefresh);
    lab.reboot();
    let mended = lab.step();
    assert_eq!(mended.after.mode, Mode::FullPoolRefresh, "{:?}", mended.codes());
    lab.later(10);
    let played = lab.step();
    assert_eq!(played.after.mode, Mode::Normal);
    assert_eq!(played.after.pool.unwrap().generation, 2);
}

#[test]
fn renamed_slots_never_have_a_pair_of_keys_up_twice() {
    // The world itself refuses a trial and a load of what is up elsewhere.
    for names in [["wg1", "vpn2"], ["wg1", "wg2"]] {
        let mut lab = normal(2, &["a", "b"]);
        lab.policy.slots.interfaces = names.iter().map(|name| interface(name)).collect();
        for _ in 0..6 {
            lab.later(10);
            lab.step();
        }
        let kept: Vec<String> = lab.kernel.tunnels.keys().map(ToString::to_string).collect();
        assert_eq!(kept, if names[1] == "vpn2" { ["vpn2", "wg1"] } else { ["wg1", "wg2"] });
    }
}

#[test]
fn a_client_that_comes_later_is_placed_like_the_others_and_its_old_flows_end() {
    let mut lab = normal(2, &["a", "b", "c"]);
    lab.policy = policy(2, 5, &json!({ "local_repair_retest_count": 1 }));
    lab.later(10);
    let played = lab.step();
    assert_eq!(played.after.egress.len(), 5);
    let unmarked = |cut: &&Cut| matches!(cut, Cut::Unmarked(_));
    assert_eq!(played.decision.wished.cuts.iter().filter(unmarked).count(), 1);

    let mut lab = normal(1, &["a"]);
    lab.set(&["a"], Endpoint::Dead);
    for _ in 0..10 {
        lab.later(10);
        lab.step();
    }
    lab.policy = policy(1, 5, &json!({ "local_repair_retest_count": 1 }));
    lab.later(10);
    lab.step();
    let direct = lab.state().egress.values().filter(|egress| **egress == Egress::Direct).count();
    assert_eq!(direct, 5, "in Direct it goes where the others are");
}

#[test]
fn a_refresh_waits_for_a_slot_that_is_being_mended_and_leaves_its_endpoint_where_it_is() {
    let mut lab = normal(2, &["a", "b", "c", "d"]);
    let before = lab.kernel.tunnels.clone();
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    lab.later(10);
    assert_eq!(lab.step().after.mode, Mode::FullPoolRefresh);
    boots(&mut lab);
    let mended = lab.step();
    assert_eq!(mended.after.mode, Mode::FullPoolRefresh, "{:?}", mended.codes());
    lab.later(10);
    let done = lab.step();
    assert_eq!(done.after.mode, Mode::Normal, "{:?}", done.codes());
    assert_eq!(done.after.pool.as_ref().unwrap().generation, 2);
    for (slot, tunnel) in &before {
        assert_eq!(lab.kernel.tunnels[slot].ends, tunnel.ends, "{slot} had no fault");
    }
}

#[test]
fn a_refresh_does_not_wait_for_ever_for_a_slot_that_nothing_can_be_said_of() {
    let mut lab = normal(2, &["a", "b", "c", "d"]);
    lab.blind = true;
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    for _ in 0..30 {
        lab.later(10);
        if lab.step().after.pool.as_ref().unwrap().generation == 2 {
            return;
        }
    }
    panic!("it waits for ever: {:?}", lab.state().mode);
}

/// A pool whose provider is reached through a tunnel alone.
fn walled(names: &[&'static str]) -> Lab {
    let provider = json!({ "http": { "url": "https://192.0.2.70/list.json", "via": Value::Null } });
    let params = json!({
        "local_repair_retest_count": 1, "direct_grace_sec": 0, "bootstrap_retry_interval_sec": 0,
    });
    let mut lab = lab_of(policy_by(2, 4, &params, &provider), names);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab.source = Source::ByTunnel(names.iter().map(|name| (*name).to_owned()).collect());
    lab
}

/// All is gone, as after a boot.
fn boots(lab: &mut Lab) {
    lab.kernel = lab_of(lab.policy.clone(), &[]).kernel;
    lab.now.boot = format!("{}2", lab.now.boot).into();
    lab.later(10);
}

#[test]
fn a_slot_that_is_being_mended_is_no_way_to_the_provider_that_failed() {
    let mut lab = walled(&["a", "b", "c", "d"]);
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    lab.later(10);
    assert_eq!(lab.step().after.mode, Mode::FullPoolRefresh);
    boots(&mut lab);
    let mended = lab.step();
    assert_eq!(mended.after.mode, Mode::FullPoolRefresh, "{:?}", mended.codes());
    lab.later(10);
    let done = lab.step();
    assert_eq!(done.after.mode, Mode::Normal, "asked through a slot: {:?}", done.codes());
}

#[test]
fn a_lent_slot_is_not_dropped_because_the_machine_booted() {
    let mut lab = walled(&["a", "b", "c", "d"]);
    lab.set(&["a", "b", "c", "d"], Endpoint::Dead);
    for _ in 0..20 {
        lab.later(10);
        if lab.step().after.mode == Mode::BootstrapRecovery {
            break;
        }
    }
    lab.set(&["d"], Endpoint::Alive);
    let lent = |lab: &Lab| match &lab.state().slots[&interface("vpn1")].content {
        Content::Lent(candidate) => Some(candidate.name.clone()),
        Content::Loaded(_) | Content::Empty => None,
    };
    for _ in 0..20 {
        lab.later(10);
        lab.step();
        if lent(&lab).is_some() {
            break;
        }
    }
    assert_eq!(lent(&lab).as_deref(), Some("d"));
    let failed = lab.state().bootstrap.failed.clone();
    boots(&mut lab);
    let mended = lab.step();
    assert_eq!(lent(&lab).as_deref(), Some("d"), "{:?}", mended.codes());
    assert_eq!(lab.state().bootstrap.failed, failed);
    lab.set(&["a", "b", "c"], Endpoint::Alive);
    lab.later(10);
    let back = lab.step();
    assert_eq!(back.after.mode, Mode::Normal, "{:?}", back.codes());
}

#[test]
fn a_tunnel_bears_witness_to_the_uplink_when_the_only_reference_is_dead() {
    for dead in ["a", "b"] {
        let mut lab = normal(2, &["a", "b", "c"]);
        lab.uplink = Uplink::ReferencesDown;
        lab.set(&[dead], Endpoint::Dead);
        for _ in 0..4 {
            lab.later(10);
            lab.step();
        }
        let now = lab.state();
        let repairs = now.repair_events_since_full_refresh;
        assert_eq!((now.mode, repairs), (Mode::Normal, 1), "{dead} is replaced: {now:#?}");
    }
}

#[test]
fn flows_of_neighbours_from_before_end_together() {
    let mut lab = lab_of(policy(2, 200, &json!({})), &["a", "b", "c"]);
    let played = lab.step();
    let nets: Vec<IpNet> = played
        .decision
        .wished
        .cuts
        .iter()
        .map(|cut| match cut {
            Cut::Unmarked(net) => *net,
            Cut::Marked(_) | Cut::Through { .. } => panic!("no slot stopped serving: {cut:?}"),
        })
        .collect();
    assert!(nets.len() <= 10, "each takes processes of its own: {nets:?}");
    let clients = lab.policy.client_prefixes();
    let meant = |client: &Ipv4Net| nets.iter().any(|net| net.contains(&IpNet::V4(*client)));
    assert!(clients.iter().all(meant), "{nets:?}");
    let hosts: u32 = nets.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
    assert_eq!(hosts, 200, "of nobody else: {nets:?}");
}
