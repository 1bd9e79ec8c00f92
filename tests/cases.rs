//! Faults that tools of this kind were reported with, by the numbers that tests are named after, and the tests that
//! hold what is right here.

use crate::world;

use egressctl::kernel::diff::diff;
use egressctl::machine::{Machine as _, Subject};
use egressctl::observation::{
    AnyOrAll, Asker, Expect, Page, PageReading, Pages, PagesReading, Way,
};
use egressctl::plan::Action;
use egressctl::pool::Pool;
use egressctl::pool::health::{Evidence, Failure, Health, OWN_BYTES, judge};
use egressctl::pool::state::{Content, Mode};
use egressctl::time::Moment;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use world::{Endpoint, Steps as _, lab_of, policy};

/// Number, what was reported, and where what is right is held to: file and function.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const FILES: &str = "src/wireguard/parse/tests/cases.rs";
const WRITTEN: &str = "src/wireguard/render/tests.rs";

const CASES: [Case; 39] = [
    (
        "c01",
        "only the first of several Address and AllowedIPs lines is kept",
        &[(FILES, "c01_list_keys_accumulate_over_lines_and_commas_in_order")],
    ),
    (
        "c03",
        "a list is written without separators",
        &[
            (WRITTEN, "c03_what_is_written_is_read_back_as_the_same_value"),
            (FILES, "c03_concatenated_allowed_ips_are_refused_with_their_line"),
            ("tests/bad_machine.rs", "a_bad_config_is_told_and_the_others_are_used"),
        ],
    ),
    (
        "c04",
        "keys of wg-quick are given to wg, or hooks are run",
        &[
            (WRITTEN, "c04_setconf_gets_every_key_that_wg_knows_and_no_other"),
            (FILES, "c04_wg_quick_keys_are_recorded_or_ignored_with_a_note_and_hooks_never_run"),
        ],
    ),
    (
        "c05",
        "an IPv6 endpoint without brackets is cut at its last colon",
        &[(FILES, "c05_an_ipv6_endpoint_without_brackets_is_refused_with_the_right_spelling")],
    ),
    (
        "c07",
        "a URL or a prefix as endpoint is only called invalid",
        &[(FILES, "c07_a_url_or_a_prefix_in_the_endpoint_is_named")],
    ),
    (
        "c08",
        "names are compared by case",
        &[(FILES, "c08_sections_and_keys_are_read_in_any_case_and_values_are_not_changed")],
    ),
    (
        "c10",
        "AmneziaWG's keys on a plain kernel",
        &[(FILES, "c10_amnezia_keys_are_a_dialect_and_no_problem")],
    ),
    (
        "c12",
        "empty keys",
        &[(FILES, "c12_an_empty_preshared_key_is_absent_and_an_empty_public_key_is_a_problem")],
    ),
    (
        "c13",
        "placeholders in place of keys",
        &[(FILES, "c13_every_problem_is_reported_in_one_pass_and_no_key_is_shown")],
    ),
    (
        "c14",
        "two peers with one default route",
        &[(FILES, "c14_two_peers_with_one_default_route_are_refused")],
    ),
    (
        "c15",
        "a host name as endpoint holds up everything while no name server answers",
        &[
            (
                "tests/cases.rs",
                "c15_without_a_name_server_tunnels_are_left_alone_and_nobody_is_blamed",
            ),
            ("tests/host_resolve.rs", "every_name_has_an_answer_by_the_deadline"),
            (
                "tests/bootstrap.rs",
                "what_it_is_asked_with_when_no_name_is_resolved_is_the_last_good_answer",
            ),
            (WRITTEN, "c04_setconf_gets_every_key_that_wg_knows_and_no_other"),
        ],
    ),
    (
        "c17",
        "the name server is only reached through the tunnel that needs it",
        &[("src/check/resolver.rs", "a_resolver_in_a_slot_counts_when_no_other_is_outside")],
    ),
    (
        "c18",
        "what a failed end left behind blocks the next beginning",
        &[
            ("tests/pool_crash.rs", "killed_at_each_command_of_the_first_run"),
            ("tests/host_hands.rs", "a_change_cut_short_anywhere_is_undone_whole"),
            ("tests/cases.rs", "c18_what_is_taken_down_needs_no_name_server"),
        ],
    ),
    (
        "c19",
        "an endpoint is led into its own tunnel",
        &[
            (
                "tests/pool_edited.rs",
                "c19_an_endpoint_that_is_led_into_its_own_tunnel_loses_its_clients_and_floods_nobody",
            ),
            ("tests/pool_edited.rs", "c19_a_reserve_that_is_led_into_another_slot_is_never_loaded"),
            ("src/check/pool/tests.rs", "an_endpoint_in_a_slot_is_told_and_one_by_the_wan_is_not"),
        ],
    ),
    (
        "c21",
        "a tunnel in a tunnel leaves directly",
        &[
            (
                "tests/chain_lab.rs",
                "any_node_may_die_in_any_way_and_its_backup_carries_within_the_step_that_sees_it",
            ),
            (
                "tests/chain_tunnels.rs",
                "a_node_that_dies_is_replaced_alone_within_the_step_that_sees_it",
            ),
        ],
    ),
    (
        "c22",
        "handshakes succeed and nothing is carried",
        &[
            (
                "tests/cases.rs",
                "c22_only_what_was_asked_and_what_came_back_say_whether_a_tunnel_lives",
            ),
            (
                "tests/pool_story.rs",
                "an_endpoint_that_comes_back_was_a_false_alarm_and_portal_blackhole_and_stop_are_noticed",
            ),
        ],
    ),
    (
        "c24",
        "a probe leaves by another interface",
        &[
            ("tests/host_http.rs", "a_socket_is_tied_to_its_device_or_not_used"),
            ("tests/decisions.rs", "what_cannot_be_judged_is_neither_failed_nor_healthy"),
        ],
    ),
    (
        "c25",
        "a probe is bound to a source address alone",
        &[(
            "tests/selector_route_lab.rs",
            "new_flows_move_and_return_while_open_ones_stay_where_they_are",
        )],
    ),
    (
        "c26",
        "a portal answers everything",
        &[
            ("tests/host_http.rs", "a_portal_shows_itself_by_status_body_and_redirect"),
            (
                "tests/pool_story.rs",
                "an_endpoint_that_comes_back_was_a_false_alarm_and_portal_blackhole_and_stop_are_noticed",
            ),
        ],
    ),
    (
        "c28",
        "one lost packet restarts a tunnel",
        &[
            ("tests/pool_keys.rs", "so_many_failed_checks_stop_a_slot"),
            ("tests/pool_keys.rs", "so_many_false_alarms_within_a_window_are_none"),
        ],
    ),
    (
        "c29",
        "small packets pass and large ones do not",
        &[
            ("tests/decisions.rs", "large_packets_are_eaten"),
            (
                "tests/pool_story.rs",
                "a_path_that_eats_large_packets_gets_a_smaller_mtu_before_its_endpoint_is_given_up",
            ),
        ],
    ),
    (
        "c31",
        "the page that is asked is what failed",
        &[
            ("tests/cases.rs", "c31_a_page_that_cannot_be_asked_for_says_nothing_of_the_tunnel"),
            ("tests/decisions.rs", "what_cannot_be_judged_is_neither_failed_nor_healthy"),
        ],
    ),
    (
        "c32",
        "strict reverse paths drop what carries a mark",
        &[
            ("tests/pool_drift.rs", "the_same_holds_with_strict_reverse_paths"),
            (
                "tests/pool_leaks.rs",
                "with_a_strict_wan_and_half_routes_and_the_hosts_own_masquerade_the_same_holds",
            ),
        ],
    ),
    (
        "c34",
        "rules pile up",
        &[(
            "tests/pool_drift.rs",
            "a_hundred_steps_in_a_steady_world_only_look_with_four_processes_at_most",
        )],
    ),
    (
        "c36",
        "a cleanup deletes other people's rules",
        &[
            (
                "src/iproute/route/tests.rs",
                "c36_a_request_that_would_delete_a_strangers_route_is_foreseen",
            ),
            (
                "src/iproute/rule/tests.rs",
                "c36_a_request_that_would_delete_a_strangers_rule_is_foreseen",
            ),
            (
                "tests/pool_edited.rs",
                "a_strangers_route_and_rule_with_our_number_elsewhere_are_left_alone",
            ),
        ],
    ),
    (
        "c37",
        "IPv6 goes around the tunnel",
        &[(
            "tests/pool_leaks.rs",
            "with_a_loose_wan_each_layer_closes_when_a_stranger_takes_the_other",
        )],
    ),
    (
        "c38",
        "old flows stay on the old path, or all flows are cut",
        &[
            ("tests/host_hands.rs", "a_cut_ends_its_own_flows_and_no_other"),
            ("tests/pool_faults.rs", "open_flows_that_cannot_be_ended_are_a_note_and_no_failure"),
        ],
    ),
    (
        "c40",
        "flows are cut with nowhere to go",
        &[
            (
                "tests/selector_decisions.rs",
                "a_failover_waits_for_traffic_and_for_a_reserve_that_answers",
            ),
            (
                "tests/pool_story.rs",
                "five_slots_come_up_in_one_step_and_are_repaired_until_nothing_is_left",
            ),
        ],
    ),
    (
        "c48",
        "a part of a list comes with success",
        &[
            ("tests/decisions.rs", "a_short_list_is_refused_until_it_came_three_times"),
            (
                "tests/providers_hostile.rs",
                "after_each_bad_day_the_pool_is_as_it_was_and_status_says_why",
            ),
        ],
    ),
    (
        "c50",
        "a provider that refuses is asked again and again",
        &[
            (
                "tests/pool_params.rs",
                "a_provider_that_refuses_is_left_alone_for_as_long_as_it_wishes",
            ),
            (
                "tests/bootstrap.rs",
                "refusals_in_a_row_double_the_wait_up_to_a_bound_and_no_two_gateways_come_back_together",
            ),
        ],
    ),
    (
        "c51",
        "names with blanks, slashes and pictures",
        &[("tests/clash_driver.rs", "a_name_of_any_kind_is_selected_and_read_back")],
    ),
    (
        "c53",
        "a choice is lost at a restart",
        &[
            (
                "tests/selector_steps.rs",
                "a_core_that_is_down_or_restarts_is_waited_for_and_its_lost_choice_is_made_again_once",
            ),
            ("tests/clash_driver.rs", "a_choice_is_lost_only_where_a_restart_explains_it"),
        ],
    ),
    (
        "c54",
        "a group without members goes out directly",
        &[(
            "tests/clash_driver.rs",
            "a_group_without_members_or_that_is_none_is_told_from_a_missing_one",
        )],
    ),
    (
        "c56",
        "a change takes the proxy off a record",
        &[
            ("tests/dns_cloudflare.rs", "a_change_names_address_and_ttl_and_nothing_else"),
            ("tests/dns_cloudflare.rs", "a_proxy_that_was_lost_is_an_error_with_what_was_there"),
        ],
    ),
    (
        "c58",
        "what is wanted is on the second page",
        &[("tests/dns_cloudflare.rs", "several_records_change_all_at_once")],
    ),
    (
        "c59",
        "times to live that an API refuses",
        &[
            ("tests/dns_cloudflare.rs", "a_change_names_address_and_ttl_and_nothing_else"),
            ("tests/dns_cloudflare.rs", "what_is_no_success_is_told_without_the_token"),
        ],
    ),
    (
        "c62",
        "a host name moves on one failed check",
        &[
            ("tests/dns_decisions.rs", "one_failed_check_moves_nothing"),
            ("tests/dns_decisions.rs", "a_native_that_flaps_is_quarantined"),
        ],
    ),
    (
        "c63",
        "a host name wanders among dead nodes",
        &[("tests/dns_decisions.rs", "with_nobody_alive_the_record_stays")],
    ),
    (
        "c64",
        "the watcher itself is offline",
        &[
            ("tests/dns_decisions.rs", "a_round_that_may_be_our_own_fault_counts_nothing"),
            (
                "tests/dns_lab.rs",
                "a_watcher_without_an_uplink_writes_nothing_and_goes_on_when_it_is_back",
            ),
        ],
    ),
];

#[test]
fn every_case_has_its_tests_and_each_says_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (number, what, tests) in CASES {
        assert!(!what.is_empty() && !tests.is_empty(), "{number}");
        for (file, function) in tests {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let at = text
                .find(&format!("fn {function}()"))
                .unwrap_or_else(|| panic!("{number}: no {function} in {file}"));
            let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let before = text[..line]
                .lines()
                .rev()
                .take_while(|line| !line.trim().is_empty() && line.trim() != "}");
            let before: Vec<&str> = before.map(str::trim).collect();
            assert!(before.contains(&"#[test]"), "{number}: {function} is no test");
            let numbers = number.to_uppercase();
            let told =
                before.iter().any(|line| line.starts_with("/// Case") && line.contains(&numbers));
            assert!(
                told || function.starts_with(number),
                "{number}: {function} in {file} does not say so"
            );
        }
    }
    let mut numbers: Vec<&str> = CASES.iter().map(|(number, ..)| *number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), CASES.len(), "a number stands once");
}

#[test]
fn c15_without_a_name_server_tunnels_are_left_alone_and_nobody_is_blamed() {
    let mut lab =
        lab_of(policy(2, 2, &json!({ "local_repair_retest_count": 1 })), &["a", "b", "c"]);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    // All endpoints are known by names, of which nobody has ever said an address.
    let state = lab.state.as_mut().unwrap();
    for candidate in state.pool.iter_mut().flat_map(|list| Arc::make_mut(&mut list.candidates)) {
        candidate.host = format!("{}.vpn.example", candidate.name);
    }
    for slot in state.slots.values_mut() {
        if let Content::Loaded(candidate) = &mut slot.content {
            candidate.host = format!("{}.vpn.example", candidate.name);
        }
    }
    lab.resolver = false;
    let tunnels = lab.kernel.tunnels.clone();
    for played in lab.steps(5, 10) {
        assert_eq!(played.after.mode, Mode::Normal, "{:?}", played.decision);
    }
    assert_eq!(lab.kernel.tunnels, tunnels, "a tunnel that carries is not touched for its name");
    // One dies, and the only one left has no address: it is not held against that one.
    lab.set(&["a"], Endpoint::Dead);
    lab.steps(6, 10);
    assert!(
        lab.state().quarantine.values().all(|one| one.name != "c"),
        "{:?}",
        lab.state().quarantine
    );
    lab.resolver = true;
    lab.steps(12, 10);
    let loaded = |name: &str| {
        lab.state().slots.values().any(|slot| slot.candidate().is_some_and(|c| c.name == name))
    };
    assert!(loaded("b") && loaded("c") && !loaded("a"), "{:?}", lab.state().slots);
}

#[test]
fn c18_what_is_taken_down_needs_no_name_server() {
    let mut lab = lab_of(policy(2, 2, &json!({})), &["a", "b", "c"]);
    lab.step();
    assert!(!lab.kernel.tunnels.is_empty());
    // It is made of what is remembered alone, and what it does names no host.
    let subject = Subject::<Pool> {
        name: &lab.name,
        policy: &lab.policy,
        state: lab.state.as_ref(),
        paused: false,
        owned: &lab.owned,
    };
    let retired = Pool::retire(&subject, &lab.now).unwrap();
    let plan = diff(&lab.kernel, &retired.world, &Pool::means(&lab.policy));
    assert!(!plan.is_empty());
    for step in &plan {
        assert!(
            !matches!(step.action, Action::Configure { .. } | Action::CreateTunnel { .. }),
            "{step:?}"
        );
    }
}

fn pages(require: AnyOrAll) -> Pages {
    let page = |n: u8| Page {
        url: format!("http://192.0.2.{n}/").try_into().unwrap(),
        addresses: Vec::new(),
    };
    Pages {
        asker: Asker::Wan,
        turn: 0,
        way: Way::Main,
        pages: vec![page(1), page(2)],
        require,
        expect: Expect::Status(vec![204]),
        timeout_ms: 1_000,
        patience: None,
    }
}

fn answers(pages: [PageReading; 2]) -> PagesReading {
    PagesReading { at: Moment::epoch(), pages: pages.map(Some).to_vec() }
}

fn good() -> PageReading {
    PageReading::Answer { status: 204, body: String::new(), bytes: 0, elapsed_ms: 7 }
}

fn judged(require: AnyOrAll, seen: [PageReading; 2], rx_grew: u64) -> Health {
    let (question, reading) = (pages(require), answers(seen));
    judge(&Evidence {
        probe: Some((&question, &reading)),
        large: None,
        rx_grew,
        saturated: 0,
        wan_address: false,
        wan_up: true,
    })
}

/// Handshakes are no evidence at all: there is no place for one. A handshake is received, so the counters grow by some.
#[test]
fn c22_only_what_was_asked_and_what_came_back_say_whether_a_tunnel_lives() {
    let silent = || [PageReading::TimedOut, PageReading::TimedOut];
    let handshakes = 40 * 148;
    for (seen, rx, lives) in [
        ([good(), PageReading::TimedOut], 0, true),
        ([good(), PageReading::TimedOut], handshakes, true),
        (silent(), 0, false),
        (silent(), handshakes, false),
        // Somebody's traffic is carried while the probe is not: that is load, and for a while no death.
        (silent(), OWN_BYTES + 1, true),
    ] {
        let judged = judged(AnyOrAll::Any, seen.clone(), rx);
        assert_eq!(matches!(judged, Health::Healthy { .. }), lives, "{seen:?} {rx}: {judged:?}");
        assert!(lives || judged == Health::Failed(Failure::Silent), "{judged:?}");
    }
}

#[test]
fn c31_a_page_that_cannot_be_asked_for_says_nothing_of_the_tunnel() {
    let unasked = || PageReading::NoAddress;
    for require in [AnyOrAll::Any, AnyOrAll::All] {
        let judged = judged(require, [unasked(), unasked()], 0);
        assert!(matches!(judged, Health::Unknown(_)), "{require:?}: {judged:?}");
    }
    assert!(matches!(judged(AnyOrAll::Any, [unasked(), good()], 0), Health::Healthy { .. }));
    assert_eq!(
        judged(AnyOrAll::Any, [unasked(), PageReading::TimedOut], 0),
        Health::Failed(Failure::Silent)
    );
}
