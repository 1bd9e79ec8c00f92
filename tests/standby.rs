//! The standby tunnel: what it is good for, when it is up, and what it never does.

use crate::walk;
use crate::world;

use egressctl::machine::Machine as _;
use egressctl::pool::Pool;
use egressctl::pool::state::{Egress, Mode, Slot};
use egressctl::pool::status::{StandbyHealth, status};
use egressctl::record::Record;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use world::{
    Endpoint, Lab, Outcome, Played, Source, Steps as _, Uplink, interface, lab_of, policy_by, story,
};

const ALL: [&str; 4] = ["a", "b", "c", "d"];
/// What the standby leads to.
const BOOT: &str = "boot";

/// So many slots, a provider in the network and a standby, which works.
fn lab(slots: usize, keep: &str, via: &Value, params: &Value) -> Lab {
    let mut all = json!({
        "local_repair_retest_count": 1, "direct_grace_sec": 0, "bootstrap_retry_interval_sec": 30,
    });
    for (key, value) in params.as_object().unwrap() {
        all[key] = value.clone();
    }
    let provider = json!({ "http": { "url": "https://192.0.2.70/list.json", "via": via } });
    let mut policy = policy_by(slots, 3, &all, &provider);
    policy.bootstrap = serde_json::from_value(json!({
        "wireguard": { "interface": "vpnboot", "config": "/etc/egressctl/boot.conf", "keep": keep }
    }))
    .unwrap();
    let mut lab = lab_of(policy, &ALL);
    lab.standby = Ok(BOOT.to_owned());
    lab.set(&[BOOT], Endpoint::Alive);
    lab
}

/// A provider that lists these to those who come by the standby.
fn for_standby(names: &[&str]) -> Source {
    Source::By(interface("vpnboot"), names.iter().map(|name| (*name).to_owned()).collect())
}

fn tell(name: &str, lab: &Lab, played: &Played) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, story(lab, played)));
}

fn is_up(lab: &Lab) -> bool {
    lab.kernel.tunnels.contains_key(&interface("vpnboot"))
}

/// By which devices the provider was asked.
fn asked_by(played: &Played) -> BTreeSet<String> {
    let vias = played.seen.lists().filter_map(|(question, _)| question.via.clone());
    vias.map(|via| via.device.to_string()).collect()
}

fn only(name: &str) -> BTreeSet<String> {
    [name.to_owned()].into()
}

fn health(lab: &Lab) -> StandbyHealth {
    row(lab).health
}

fn row(lab: &Lab) -> egressctl::pool::status::StandbyRow {
    let record = Record { machine: lab.state.clone(), ..Record::default() };
    status(&lab.name, &lab.policy, &record, &lab.now).standby.expect("it is shown")
}

fn until(lab: &mut Lab, most: usize, mut done: impl FnMut(&Played) -> bool) -> Played {
    for _ in 0..most {
        lab.later(31);
        let played = lab.step();
        if done(&played) {
            return played;
        }
    }
    panic!("it did not come to that in {most} steps: {:?}", lab.state());
}

fn falls_to_recovery(lab: &mut Lab) {
    until(lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
}

#[test]
fn a_first_run_that_only_the_standby_can_feed_fills_the_pool_and_a_kept_one_stays_up() {
    let mut lab = lab(2, "standby", &json!("tunnel"), &json!({}));
    lab.source = Source::by_tunnel(&ALL);
    let first = lab.step();
    tell("standby_first_run_made", &lab, &first);
    assert_eq!(asked_by(&first), BTreeSet::new(), "nobody is asked by a tunnel that is not proven");
    assert!(is_up(&lab));
    assert!(first.after.egress.is_empty(), "clients are untouched until a set is proven");
    lab.later(10);
    let second = lab.step();
    tell("standby_first_run_fills_the_pool", &lab, &second);
    assert_eq!(asked_by(&second), only("vpnboot"));
    assert_eq!(second.after.mode, Mode::Normal);
    assert!(is_up(&lab), "it stays");
    let record = Record { machine: lab.state.clone(), ..Record::default() };
    let shown = status(&lab.name, &lab.policy, &record, &lab.now);
    let line = shown.to_string().lines().find(|l| l.contains("standby")).unwrap().to_owned();
    assert_eq!(line, "  standby vpnboot healthy: boot  20 ms  since 2026-01-01 00:00:00Z");
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["standby"]["health"], "healthy");
    assert_eq!(json["standby"]["interface"], "vpnboot");
    lab.later(10);
    lab.step();
    lab.later(10);
    assert!(lab.quiet(), "a settled state does nothing");
    assert_eq!(health(&lab), StandbyHealth::Healthy);
}

#[test]
fn one_that_is_down_is_up_only_while_the_provider_is_asked_by_it() {
    let mut lab = lab(2, "down", &Value::Null, &json!({}));
    lab.source = Source::by_tunnel(&ALL);
    let first = lab.step();
    assert_eq!(asked_by(&first), only("eth0"), "the uplink comes first");
    assert!(!is_up(&lab));
    assert_eq!(health(&lab), StandbyHealth::Down);
    let raised =
        until(&mut lab, 2, |played| played.codes().iter().any(|code| code == "standby-raised"));
    tell("standby_raised", &lab, &raised);
    assert!(is_up(&lab) && asked_by(&raised).is_empty());
    lab.later(10);
    let filled = lab.step();
    tell("standby_lowered", &lab, &filled);
    assert_eq!(asked_by(&filled), only("vpnboot"));
    assert_eq!(filled.after.mode, Mode::Normal);
    assert!(!is_up(&lab), "it is taken down with the list that it brought");
    lab.later(10);
    lab.step();
    lab.later(10);
    assert!(lab.quiet());
}

#[test]
fn in_service_it_is_asked_after_the_uplink_and_the_serving_slots() {
    for keep in ["standby", "down"] {
        let mut lab = lab(1, keep, &Value::Null, &json!({}));
        lab.step();
        lab.later(10);
        lab.step();
        assert_eq!(lab.state().mode, Mode::Normal);
        // The slot serves, and the provider answers the standby alone.
        lab.source = for_standby(&ALL);
        lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
        let mut asked = BTreeSet::new();
        let got = until(&mut lab, 4, |played| {
            asked.extend(asked_by(played));
            played.after.pool.as_ref().is_some_and(|pool| pool.generation == 2)
        });
        assert_eq!(asked, ["eth0", "vpn1", "vpnboot"].map(str::to_owned).into(), "{keep}");
        assert_eq!(is_up(&lab), keep == "standby", "{keep}");
        assert_eq!(got.after.mode, Mode::Normal);
    }
}

#[test]
fn out_of_direct_every_order_of_the_strategies_comes_to_the_standby() {
    for order in [
        ["wireguard", "direct", "cached_pool"],
        ["direct", "wireguard", "cached_pool"],
        ["cached_pool", "direct", "wireguard"],
        ["cached_pool", "wireguard", "direct"],
    ] {
        for keep in ["standby", "down"] {
            let params = json!({ "bootstrap_strategy_order": order });
            let mut lab = lab(1, keep, &Value::Null, &params);
            lab.step();
            lab.set(&ALL, Endpoint::Dead);
            lab.source = for_standby(&["e"]);
            lab.set(&["e"], Endpoint::Alive);
            falls_to_recovery(&mut lab);
            let back = until(&mut lab, 12, |played| played.after.mode == Mode::Normal);
            assert!(!back.after.egress.values().any(|egress| *egress == Egress::Direct));
            assert_eq!(back.after.bootstrap, egressctl::pool::state::Bootstrap::default());
            assert_eq!(is_up(&lab), keep == "standby", "{order:?} {keep}");
        }
    }
}

#[test]
fn one_that_dies_on_the_way_is_dropped_and_the_next_way_is_tried() {
    let mut lab = lab(
        1,
        "standby",
        &Value::Null,
        &json!({
            "bootstrap_strategy_order": ["wireguard", "direct"], "hmn_refresh_retry_interval_sec": 60,
        }),
    );
    lab.step();
    lab.set(&ALL, Endpoint::Dead);
    // A list comes by it, and nothing on it works.
    lab.source = for_standby(&["d"]);
    falls_to_recovery(&mut lab);
    until(&mut lab, 6, |played| played.after.bootstrap.transport.is_some());
    lab.set(&[BOOT], Endpoint::Dead);
    lab.source = Source::Unavailable;
    let dropped = until(&mut lab, 6, |played| played.after.bootstrap.transport.is_none());
    tell("standby_dies_and_is_dropped", &lab, &dropped);
    assert!(dropped.codes().contains(&"standby-useless".to_owned()));
    lab.source = Source::lists(&["e"]);
    lab.set(&["e"], Endpoint::Alive);
    let back = until(&mut lab, 6, |played| played.after.mode == Mode::Normal);
    assert_eq!(asked_by(&back), only("eth0"));
}

#[test]
fn its_answer_proves_the_uplink_when_nothing_else_does() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.step();
    lab.later(10);
    lab.step();
    lab.uplink = Uplink::ReferencesDown;
    lab.set(&["a"], Endpoint::Dead);
    lab.later(10);
    let played = lab.step();
    assert_eq!(played.after.slots[&interface("vpn1")].failures, 1, "{:?}", played.codes());
    lab.set(&[BOOT], Endpoint::Dead);
    lab.later(10);
    let held = lab.step();
    assert!(held.after.settle, "with the standby silent too it may be the uplink");
}

#[test]
fn drift_of_it_is_healed_and_counts_nothing() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.step();
    lab.later(10);
    lab.step();
    let boot = interface("vpnboot");
    lab.kernel.tunnels.remove(&boot);
    lab.kernel.routes.retain(|route| route.dev.as_deref() != Some("vpnboot"));
    lab.kernel.sysctls.retain(|path, _| !path.contains("vpnboot"));
    lab.later(10);
    let healed = lab.step();
    assert!(is_up(&lab));
    assert_eq!(healed.after.mode, Mode::Normal);
    lab.later(10);
    lab.step();
    assert_eq!(health(&lab), StandbyHealth::Healthy);
}

#[test]
fn a_file_that_is_missing_is_told_and_a_way_that_failed_and_stops_nothing() {
    let mut lab = lab(2, "standby", &Value::Null, &json!({}));
    lab.standby = Err("/etc/egressctl/boot.conf: No such file".to_owned());
    let first = lab.step();
    tell("standby_without_a_file", &lab, &first);
    assert_eq!(first.after.mode, Mode::Normal);
    assert!(!is_up(&lab));
    assert_eq!(row(&lab).health, StandbyHealth::Failed);
    assert_eq!(row(&lab).why, "/etc/egressctl/boot.conf: No such file");
    lab.set(&ALL, Endpoint::Dead);
    lab.source = Source::Unavailable;
    falls_to_recovery(&mut lab);
    let failed = until(&mut lab, 12, |played| {
        let failed = &played.after.bootstrap.failed;
        failed.iter().any(|way| way.why.contains("No such file"))
    });
    assert!(failed.codes().contains(&"bootstrap-failed".to_owned()));
    // A file that goes missing later leaves the tunnel that was made from it.
    lab.standby = Ok(BOOT.to_owned());
    lab.later(31);
    lab.step();
    assert!(is_up(&lab));
    lab.standby = Err("/etc/egressctl/boot.conf: No such file".to_owned());
    lab.later(31);
    lab.step();
    assert!(row(&lab).why.contains("No such file"));
    assert!(is_up(&lab));
}

#[test]
fn an_edited_file_makes_another_tunnel_in_its_place() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.step();
    lab.standby = Ok("other".to_owned());
    lab.set(&["other"], Endpoint::Alive);
    lab.later(10);
    let edited = lab.step();
    assert_eq!(edited.outcome, Outcome::Applied);
    let up = edited.is.tunnels[&interface("vpnboot")].ends.clone().unwrap();
    assert!(up.same(&world::candidate("other", 0).ends));
    lab.later(10);
    lab.step();
    assert_eq!(health(&lab), StandbyHealth::Healthy);
    assert_eq!(row(&lab).endpoint.as_deref(), Some("other"));
}

#[test]
fn a_change_that_was_undone_with_it_is_made_without_it() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.fail_at = Some(0);
    assert_eq!(lab.step().outcome, Outcome::Undone);
    lab.later(10);
    let filled = lab.step();
    assert_eq!(filled.after.mode, Mode::Normal, "the pool comes up without it");
    assert!(!is_up(&lab));
    assert!(row(&lab).why.contains("undone"), "{}", row(&lab).why);
    lab.later(31);
    lab.step();
    assert!(is_up(&lab), "it is tried again later");
}

#[test]
fn no_pair_of_keys_is_up_in_a_slot_or_tried_while_it_is_up_as_the_standby() {
    for keep in ["standby", "down"] {
        // The standby's endpoint is on the list too.
        let mut lab = lab(2, keep, &Value::Null, &json!({}));
        lab.standby = Ok("a".to_owned());
        let (mut by_slot, mut by_standby) = (0, 0);
        for turn in 0..12 {
            lab.source = match turn {
                0..4 => Source::lists(&ALL),
                _ => for_standby(&ALL),
            };
            if turn % 4 == 3 {
                lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
            }
            lab.later(10);
            let was_up = is_up(&lab);
            let played = lab.step();
            assert!(!was_up || !played.trials().contains("a"), "it is tried beside itself");
            let mut slots = played.after.slots.values().filter_map(Slot::candidate);
            let in_slot = slots.any(|candidate| candidate.name == "a");
            assert!(!(in_slot && is_up(&lab)), "{keep}: up twice in step {turn}");
            by_slot += usize::from(in_slot);
            by_standby += usize::from(is_up(&lab));
        }
        if keep == "standby" {
            assert_eq!((by_slot, by_standby), (0, 12), "its endpoint is left to it");
            let subject = egressctl::machine::Subject {
                name: &lab.name,
                policy: &lab.policy,
                state: lab.state.as_ref(),
                owned: &lab.owned,
                paused: false,
            };
            let why = Pool::switch(&subject, "vpn2=a", true).unwrap_err();
            assert!(why.contains("standby"), "{why}");
        } else {
            assert_eq!((by_slot, by_standby), (12, 0), "a slot had it first, and keeps it");
            assert!(row(&lab).why.contains("the same tunnel is up in vpn1"), "{:?}", row(&lab));
        }
    }
}

#[test]
fn a_strangers_interface_is_told_and_left_alone() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.strangers.insert(interface("vpnboot"));
    let first = lab.step();
    assert_eq!(first.after.mode, Mode::Normal);
    assert!(!is_up(&lab));
    assert!(row(&lab).why.contains("was not made by this policy"), "{}", row(&lab).why);
}

#[test]
fn with_the_policys_key_gone_the_tunnel_goes_and_down_takes_it_too() {
    let mut one = lab(1, "standby", &Value::Null, &json!({}));
    one.step();
    one.policy.bootstrap.wireguard = None;
    one.later(10);
    let removed = one.step();
    assert!(!is_up(&one) && removed.after.standby.is_none());
    assert_eq!(removed.after.mode, Mode::Normal);
}

#[test]
fn one_whose_host_has_moved_is_made_anew_and_one_without_an_address_is_told() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.standby_host = Some("boot.example".to_owned());
    lab.resolver = false;
    lab.step();
    assert!(!is_up(&lab));
    assert_eq!(row(&lab).why, "no address of boot.example is known");
    let at = |lab: &Lab| {
        let ends = lab.kernel.tunnels.get(&interface("vpnboot"))?.ends.clone()?;
        ends.endpoint.map(|endpoint| endpoint.ip().to_string())
    };
    let moves = |lab: &mut Lab, address: &str| {
        lab.names.insert("boot.example".to_owned(), address.parse().unwrap());
        lab.later(10);
        lab.step();
    };
    moves(&mut lab, "203.0.113.1");
    assert_eq!(at(&lab).as_deref(), Some("203.0.113.1"));
    moves(&mut lab, "203.0.113.2");
    moves(&mut lab, "203.0.113.2");
    assert_eq!(at(&lab).as_deref(), Some("203.0.113.1"), "as long as it works it is left alone");
    lab.set(&[BOOT], Endpoint::Dead);
    for _ in 0..5 {
        moves(&mut lab, "203.0.113.2");
    }
    assert_eq!(at(&lab).as_deref(), Some("203.0.113.2"));
}

#[test]
fn one_that_gets_another_interface_is_never_up_on_both() {
    let mut lab = lab(1, "standby", &Value::Null, &json!({}));
    lab.step();
    lab.later(10);
    lab.step();
    lab.policy.bootstrap.wireguard.as_mut().unwrap().interface = interface("vpnspare");
    lab.later(10);
    let removed = lab.step();
    assert!(!is_up(&lab) && !removed.is.tunnels.contains_key(&interface("vpnspare")));
    lab.later(10);
    let made = lab.step();
    assert!(made.is.tunnels.contains_key(&interface("vpnspare")));
    assert_eq!(made.after.mode, Mode::Normal);
}

/// Numbers that look like chance and are the same in each run.
fn chance(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % below
}

#[test]
fn whatever_happens_the_laws_hold_beside_a_standby_and_a_well_world_ends_in_normal() {
    let params = json!({
        "health_check_interval_sec": 10, "full_refresh_after_repairs": 2,
        "hmn_refresh_retry_interval_sec": 25, "bootstrap_retry_interval_sec": 15,
        "direct_grace_sec": 15, "flap_limit": 2, "flap_window_sec": 35,
        "exit_direct_from_cache": true,
    });
    for (keep, mut seed) in [("standby", 1), ("down", 2), ("standby", 3), ("down", 4)] {
        let mut lab = lab(2, keep, &Value::Null, &params);
        lab.endpoints.clear();
        for round in 0..15 {
            for _ in 0..20 {
                let all = world::inputs();
                let mut input = all[chance(&mut seed, all.len())].clone();
                if chance(&mut seed, 3) == 0 {
                    input.source = for_standby(&world::NAMES);
                }
                // The standby's endpoint may be one of the list's, too.
                lab.standby = match chance(&mut seed, 8) {
                    0 => Err("there is no file".to_owned()),
                    1 => Ok("a".to_owned()),
                    2..5 => lab.standby.clone(),
                    _ => Ok(BOOT.to_owned()),
                };
                let boot = [Endpoint::Alive, Endpoint::Dead][chance(&mut seed, 2)];
                lab.set(&[BOOT], boot);
                lab.tag = [None, Some("v1"), Some("v2")][chance(&mut seed, 3)].map(str::to_owned);
                lab.later(walk::canon::APART);
                input.put(&mut lab);
                let before = lab.clone();
                let played = lab.step();
                walk::lawful(&before, &lab, &played);
            }
            // From here on the world is well, and the provider answers the standby alone.
            let mut well = world::inputs()[0].clone();
            well.source = for_standby(&world::NAMES);
            lab.standby = Ok(BOOT.to_owned());
            lab.set(&[BOOT], Endpoint::Alive);
            let mut steps = 0;
            while lab.state().mode != Mode::Normal || walk::law::serving(lab.state()).len() < 2 {
                steps += 1;
                assert!(steps < 20, "{keep}, round {round}: not NORMAL: {:#?}", lab.state());
                lab.later(100);
                well.put(&mut lab);
                let before = lab.clone();
                let played = lab.step();
                walk::lawful(&before, &lab, &played);
            }
        }
    }
}
