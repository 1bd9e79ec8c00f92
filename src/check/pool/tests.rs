//! A pool examined, on facts that are made of a policy and of what was captured.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use super::list::MOST;
use super::*;
use crate::check::machine::tests::machine;
use crate::iproute::parse_links;
use crate::observation::{
    AnyOrAll, Asker, Expect, Observation, Page, PageReading, Pages, PagesReading, Question,
    Reading, Way,
};
use crate::policy::Policy;
use crate::record::Record;
use crate::url::Target;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// As `ip -N -j -d addr show` prints them.
fn machine_with_links() -> Machine {
    let link = |index: u32, name: &str, address: &str, length: u8, mtu: u32| {
        json!({ "ifindex": index, "ifname": name, "flags": ["UP", "LOWER_UP"], "mtu": mtu, "addr_info": [
            { "family": "inet", "local": address, "prefixlen": length, "scope": "0" } ] })
    };
    let listing =
        json!([link(2, "eth0", "203.0.113.2", 24, 1500), link(3, "eth1", "10.77.0.1", 24, 1500),]);
    Machine { links: parse_links(&listing).unwrap(), ..machine() }
}

fn policy(change: impl FnOnce(&mut Value)) -> PoolPolicy {
    let mut text = json!({
        "kind": "pool", "slots": { "interfaces": ["vpn1", "vpn2"] }, "clients": ["10.77.0.11"],
        "provider": { "directory": { "path": "/e" } },
    });
    change(&mut text);
    match Policy::parse(&text.to_string()).unwrap() {
        Policy::Pool(policy) => *policy,
        other @ (Policy::Selector(_) | Policy::Guard(_) | Policy::Dns(_) | Policy::Chain(_)) => {
            panic!("{other:?}")
        }
    }
}

/// Facts of a first run on which nothing is wrong, changed.
fn codes(
    policy: &PoolPolicy,
    machine: &Machine,
    change: impl FnOnce(&mut PoolFacts<'_>),
) -> Vec<String> {
    with(policy, machine, &Record::default(), change)
}

/// The same with a state.
fn with(
    policy: &PoolPolicy,
    machine: &Machine,
    record: &Record<PoolState>,
    change: impl FnOnce(&mut PoolFacts<'_>),
) -> Vec<String> {
    beside(policy, machine, record, None, change)
}

/// The same with what a step would remember.
fn beside(
    policy: &PoolPolicy,
    machine: &Machine,
    record: &Record<PoolState>,
    decided: Option<&PoolState>,
    change: impl FnOnce(&mut PoolFacts<'_>),
) -> Vec<String> {
    let name = PolicyName::try_from("home".to_owned()).unwrap();
    let seen = Observation::new(machine.now.clone());
    let mut facts = PoolFacts {
        stepped: Stepped {
            name: &name,
            path: Path::new("/etc/egressctl/home.json"),
            interval: Duration::from_secs(policy.params.health_check_interval_sec),
            now: &machine.now,
            record,
            damaged: None,
            foreign: None,
            is_in_flight: false,
            folder: None,
            seen: &seen,
            unable: &[],
            blind: None,
        },
        policy,
        machine,
        decided,
        ways: BTreeMap::new(),
        endpoints: BTreeMap::new(),
        files: Vec::new(),
        listed: None,
        problems: Vec::new(),
        recorded: Vec::new(),
    };
    change(&mut facts);
    findings(&facts).iter().map(|finding| finding.code.to_string()).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const NONE: [&str; 0] = [];

#[test]
fn a_sound_pool_has_no_findings() {
    assert_eq!(codes(&policy(|_| {}), &machine_with_links(), |_| {}), NONE);
}

#[test]
fn what_is_wrong_with_the_state_is_told() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let told = |change: &dyn Fn(&mut PoolFacts<'_>)| codes(&policy, &machine, change);
    assert_eq!(told(&|facts| facts.stepped.folder = Some("x".to_owned())), ["state-folder"]);
    assert_eq!(told(&|facts| facts.stepped.damaged = Some("it is empty")), ["state-damaged"]);
    assert_eq!(told(&|facts| facts.stepped.foreign = Some("x")), ["state-foreign"]);
    assert_eq!(told(&|facts| facts.stepped.is_in_flight = true), ["journal-left"]);
    assert_eq!(told(&|facts| facts.stepped.blind = Some("wg is not on PATH")), ["not-seen"]);
}

#[test]
fn a_pause_is_a_note_and_silence_is_none_while_it_lasts() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let mut record = Record::<PoolState>::default();
    let mut at = machine.now.clone();
    at.up_ms -= 301_000;
    record.last_step = Some(crate::record::LastStep {
        at: at.clone(),
        outcome: crate::outcome::Ending::Steady,
        transition: None,
        duration_ms: 1,
        reasons: Vec::new(),
    });
    assert_eq!(with(&policy, &machine, &record, |_| {}), ["not-stepped"]);
    record.paused = Some(at.clone());
    assert_eq!(with(&policy, &machine, &record, |_| {}), ["paused"]);
    record.paused = None;
    let hourly = self::policy(|text| text["params"] = json!({ "health_check_interval_sec": 3600 }));
    assert_eq!(with(&hourly, &machine, &record, |_| {}), NONE);
}

#[test]
fn clients_are_neither_the_gateway_nor_who_is_logged_in() {
    let machine = Machine { login: Some(ip("10.77.0.20")), ..machine_with_links() };
    let of = |clients: Value| codes(&policy(|text| text["clients"] = clients), &machine, |_| {});
    assert_eq!(of(json!(["10.77.0.1"])), ["client-own-address"]);
    assert_eq!(of(json!(["203.0.113.2"])), ["client-own-address"]);
    assert_eq!(of(json!(["10.77.0.20"])), ["client-is-login"]);
    assert_eq!(
        of(json!([{ "prefix": "10.77.0.0/24", "spread": true }])),
        ["client-own-address", "client-is-login"]
    );
    assert_eq!(of(json!(["10.77.0.16/30", "user:root"])), NONE);
}

#[test]
fn a_prefix_without_one_address_is_whole_but_for_it() {
    let net: IpNet = "10.77.0.0/29".parse().unwrap();
    let rest = around(net, ip("10.77.0.1"));
    let shown: Vec<String> = rest.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.77.0.0/32", "10.77.0.2/31", "10.77.0.4/30"]);
    assert_eq!(
        without(net, ip("10.77.0.1")),
        "write in its place \"10.77.0.0\", \"10.77.0.2/31\", \"10.77.0.4/30\""
    );
    assert_eq!(around("10.77.0.1/32".parse().unwrap(), ip("10.77.0.1")), []);
}

/// Case C19.
#[test]
fn an_endpoint_in_a_slot_is_told_and_one_by_the_wan_is_not() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let told = |device: &str| {
        codes(&policy, &machine, |facts| {
            facts.endpoints = BTreeMap::from([(ip("198.51.100.11"), "p1".to_owned())]);
            facts.ways = BTreeMap::from([(ip("198.51.100.11"), device.to_owned())]);
        })
    };
    assert_eq!(told("vpn2"), ["endpoint-in-slot"]);
    assert_eq!(told("eth0"), NONE);
}

#[test]
fn a_list_that_is_short_spoilt_or_missing_is_told() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let told = |listed: ListReading, problems: &[(&str, &str)]| {
        codes(&policy, &machine, |facts| {
            facts.listed = Some(listed);
            facts.problems = problems
                .iter()
                .map(|(name, why)| Rejected { name: (*name).to_owned(), why: (*why).to_owned() })
                .collect();
        })
    };
    let empty =
        || ListReading::Listed { candidates: Arc::default(), rejected: vec![], validators: None };
    assert_eq!(told(empty(), &[]), ["pool-small"]);
    assert_eq!(
        told(empty(), &[("a", "x"), ("b", "y")]),
        ["entry-unusable", "entry-unusable", "pool-small"]
    );
    let many = vec![("a", "x"); 25];
    assert_eq!(told(empty(), &many).len(), MOST + 2, "what is more than {MOST} is counted");
    let gone =
        ListReading::Unavailable { why: "x".to_owned(), answered: false, retry_after_sec: None };
    assert_eq!(told(gone, &[]), ["provider-unavailable"]);
}

#[test]
fn what_a_pool_needs_goes_by_its_implementation() {
    let name = PolicyName::try_from("home".to_owned()).unwrap();
    let kernel = needs(&name, &policy(|_| {}));
    assert_eq!((kernel.tun, kernel.link_types), (false, ["wireguard"].into()));
    let daemon = policy(|text| text["wireguard"] = json!({ "userspace": "wireguard-go" }));
    let needs = needs(&name, &daemon);
    assert!(needs.tun && needs.link_types.is_empty() && needs.tools.contains("wireguard-go"));
}

/// What a step would remember: `vpn1` loaded with a candidate whose file asks for this MTU.
fn decided(machine: &Machine, wan_mtu: u32, mtu: Option<u16>) -> PoolState {
    let mut state = PoolState::new(&machine.now);
    let interface = |name: &str| Interface::try_from(name.to_owned()).unwrap();
    state.surroundings = Some(Surroundings {
        wan: interface("eth0"),
        wan_mtu,
        lan: [interface("eth1")].into(),
        local4: Vec::new(),
        local6: Vec::new(),
        own: std::collections::BTreeSet::new(),
        wan_net: None,
        users: BTreeMap::new(),
    });
    let candidate =
        crate::pool::candidate::Candidate { mtu, ..crate::simulate::candidate("p1", 1).unwrap() };
    let loaded = crate::pool::state::Content::Loaded(candidate);
    let slot = crate::pool::state::Slot::new(loaded, &machine.now);
    state.slots.insert(interface("vpn1"), slot);
    state
}

#[test]
fn a_tunnel_that_does_not_fit_into_the_uplink_is_told() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let told = |wan_mtu: u32, mtu: Option<u16>| {
        let state = decided(&machine, wan_mtu, mtu);
        beside(&policy, &machine, &Record::default(), Some(&state), |_| {})
    };
    assert_eq!(told(1500, Some(1441)), ["mtu-large"]);
    assert_eq!(told(1500, Some(1440)), NONE);
    assert_eq!(told(1500, None), NONE, "the uplink's is measured");
}

#[test]
fn an_uplink_of_small_packets_is_told_where_nobody_tells_clients() {
    let machine = machine_with_links();
    let state = decided(&machine, 1492, None);
    let told = |policy: &PoolPolicy, machine: &Machine| {
        beside(policy, machine, &Record::default(), Some(&state), |_| {})
    };
    let policy =
        |open: bool| policy(|text| text["params"] = json!({ "direct_failopen_enabled": open }));
    assert_eq!(told(&policy(true), &machine), ["mss-unclamped"]);
    assert_eq!(told(&policy(false), &machine), NONE, "no client leaves by the WAN");
    let with = |table: &str, expression: Value| {
        let listing = json!({ "nftables": [
            { "chain": { "family": "inet", "table": table, "name": "f", "hook": "forward" } },
            { "rule": { "family": "inet", "table": table, "chain": "f", "expr": [expression] } },
        ]});
        Machine { ruleset: crate::check::ruleset::parse(&listing), ..machine.clone() }
    };
    // As nft 1.0 lists `tcp option maxseg size set rt mtu`, and what iptables-nft has made.
    let set = json!({ "mangle": { "key": { "tcp option": { "name": "maxseg", "field": "size" } },
                                  "value": { "rt": { "key": "mtu" } } } });
    let target = json!({ "xt": { "type": "target", "name": "TCPMSS" } });
    assert_eq!(told(&policy(true), &with("mine", set.clone())), NONE);
    assert_eq!(told(&policy(true), &with("mangle", target)), NONE);
    assert_eq!(
        told(&policy(true), &with("egressctl_home", set)),
        ["mss-unclamped"],
        "ours is for slots"
    );
    let legacy = Machine { legacy_forward: Some(String::new()), ..machine.clone() };
    assert_eq!(told(&policy(true), &legacy), NONE, "what cannot be seen is not said");
}

#[test]
fn a_list_without_reserve_is_a_note() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let told = |count: usize| {
        codes(&policy, &machine, |facts| {
            let candidates = ["a", "b", "c"].iter().take(count);
            let candidates = candidates.map(|name| crate::simulate::candidate(name, 1).unwrap());
            facts.listed = Some(ListReading::Listed {
                candidates: Arc::new(candidates.collect()),
                rejected: Vec::new(),
                validators: None,
            });
        })
    };
    assert_eq!((told(2), told(3)), (vec!["no-reserve".to_owned()], vec![]));
}

/// A page that was asked for and how it answered.
fn page(asker: Asker, answer: PageReading) -> (Question, Reading) {
    let page = Page {
        url: Target::try_from("http://192.0.2.80/generate_204".to_owned()).unwrap(),
        addresses: vec![ip("192.0.2.80")],
    };
    let pages = Pages {
        asker,
        turn: 0,
        way: Way::Main,
        pages: vec![page],
        require: AnyOrAll::Any,
        expect: Expect::Status(vec![204]),
        timeout_ms: 1_000,
        patience: None,
    };
    let reading = PagesReading { at: machine().now, pages: vec![Some(answer)] };
    (Question::Pages(pages), Reading::Pages(reading))
}

#[test]
fn what_does_not_answer_is_told_and_a_tunnel_that_does_proves_the_uplink() {
    let (policy, machine) = (policy(|_| {}), machine_with_links());
    let slot = || Asker::Slot(Interface::try_from("vpn1".to_owned()).unwrap());
    let good = || PageReading::Answer { status: 204, body: String::new(), bytes: 0, elapsed_ms: 9 };
    let told = |readings: Vec<(Question, Reading)>| {
        let mut seen = Observation::new(machine.now.clone());
        seen.readings.extend(readings);
        let record = Record::<PoolState>::default();
        let name = PolicyName::try_from("home".to_owned()).unwrap();
        let stepped = Stepped {
            name: &name,
            path: Path::new("/etc/egressctl/home.json"),
            interval: Duration::from_secs(policy.params.health_check_interval_sec),
            now: &machine.now,
            record: &record,
            damaged: None,
            foreign: None,
            is_in_flight: false,
            folder: None,
            seen: &seen,
            unable: &[],
            blind: None,
        };
        let codes = any::findings(&stepped);
        codes.iter().map(|finding| finding.code.to_string()).collect::<Vec<_>>()
    };
    let silent = || PageReading::TimedOut;
    assert_eq!(told(vec![page(Asker::Wan, silent())]), ["wan-silent"]);
    assert_eq!(told(vec![page(Asker::Wan, silent()), page(slot(), good())]), NONE);
    assert_eq!(
        told(vec![page(Asker::Wan, silent()), page(slot(), silent())]),
        ["wan-silent", "slot-silent"]
    );
    assert_eq!(told(vec![page(Asker::Wan, good()), page(slot(), good())]), NONE);
    let names = Question::Names(["list.example".to_owned()].into());
    let failed = [("list.example".to_owned(), Err("no such name".to_owned()))];
    assert_eq!(told(vec![(names, Reading::Names(failed.into()))]), ["name-unknown"]);
}
