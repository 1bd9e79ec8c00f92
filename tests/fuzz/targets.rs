//! Every parser of text that somebody else wrote, each with what it promises of any input at all.
//!
//! The fuzzer and `tests/parsers.rs` run the same functions: a promise that is broken panics.
//!
//! **Invariant:** nothing here touches the world; whatever is given, a target returns.

#![allow(unreachable_pub, reason = "the fuzzer and a test share it")]

use egressctl::bundle::{Bundle, replay};
use egressctl::check::{resolver, ruleset, services};
use egressctl::clash::mihomo::Overrides;
use egressctl::clash::{self, config, discover, mihomo, running, sing_box};
use egressctl::dns::name::{HostName, NodeName};
use egressctl::gost;
use egressctl::host::provider;
use egressctl::init::{self, Core, Here};
use egressctl::iproute::{
    Family, Route, Rule, parse_links, parse_route_get, parse_routes, parse_rules, split_batch,
};
use egressctl::kernel::nft;
use egressctl::names::{Interface, Mark, PolicyName, Table};
use egressctl::observation::{ListQuestion, ListReading, Program};
use egressctl::policy::provider::{Provider, Wanted};
use egressctl::policy::{Policy, Site};
use egressctl::proxy::Proxy;
use egressctl::record::{Journal, Record};
use egressctl::simulate::scenario::Scenario;
use egressctl::url::Target;
use egressctl::wireguard::{Outside, parse_all_dump, parse_bytes, setconf, wg_quick};
use egressctl::{chain, dns, guard, pool, selector};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// A target: a name and what is done with the bytes.
pub type Parser = (&'static str, fn(&[u8]));

/// All of them.
pub const ALL: [Parser; 11] = [
    ("wg_quick", wg_quick_file),
    ("wg_dump", wg_dump),
    ("ip_json", ip_json),
    ("nft", nft_listing),
    ("clash", clash_answer),
    ("core_config", core_config),
    ("gost", gost_answer),
    ("provider", provider_list),
    ("policy", policy_file),
    ("state", state_file),
    ("machine", machine_text),
];

/// A key of nobody's. It is given to parsers and must not come out of them.
const OWN_KEY: &str = "qG3k0fPpqkZzVbYFqf1dTHYkLw0yIuKm1S2oTTmvKmk=";

/// What is said of a word is one line that moves no cursor. It may quote the word, however long that is.
fn one_line_of_a_word(said: &impl Display) -> String {
    let said = said.to_string();
    assert!(!said.chars().any(char::is_control), "it is not one line: {said:?}");
    said
}

/// What is said of a text is one line, and one that a person can read.
fn one_line(said: &impl Display) -> String {
    let said = one_line_of_a_word(said);
    assert!(said.len() < 20_000, "it is no line for people: {} bytes", said.len());
    said
}

/// The words of a text that are WireGuard's keys.
fn keys(text: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let is_key = |word: &&str| word.len() == 44 && word.ends_with('=');
    text.split(|c| !part(c)).filter(is_key).collect()
}

fn shows_none(of: &[&str], said: &impl Debug) {
    let said = format!("{said:?}");
    for key in of {
        assert!(!said.contains(key), "a key is shown: {said}");
    }
}

/// A wg-quick file: what is understood is written and read back as the same; what is not is told in lines.
fn wg_quick_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let hidden = keys(&text);
    match parse_bytes(bytes) {
        Ok(parsed) => {
            // A name that is itself a key is shown wherever names are.
            let private = parsed.config.private_key.reveal();
            shows_none(&[private.as_str()], &parsed.notes);
            parsed.notes.iter().for_each(|note| drop(one_line(&note.text)));
            let written = wg_quick(&parsed.config);
            let again = parse_bytes(written.reveal().as_bytes());
            assert_eq!(again.map(|again| again.config), Ok(parsed.config.clone()));
            let endpoint = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 51820));
            let outside = Outside { endpoint, listen_port: None, fwmark: None };
            assert!(!setconf(&parsed.config, outside).reveal().contains("Address"));
        }
        Err(problems) => {
            assert!(!problems.is_empty() && problems.len() < 200, "{}", problems.len());
            problems.iter().map(one_line).for_each(drop);
            shows_none(&hidden, &problems);
        }
    }
}

/// `wg show all dump`.
fn wg_dump(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse_all_dump(&text) {
        Ok(tunnels) => {
            let of =
                |t: &egressctl::wireguard::DumpedTunnel| Some(t.private_key.as_ref()?.reveal());
            let private: Vec<String> = tunnels.values().filter_map(of).collect();
            let public: Vec<String> = tunnels
                .values()
                .flat_map(|t| t.peers.iter().map(|p| p.public_key).chain(t.public_key))
                .map(|key| key.to_string())
                .collect();
            let private: Vec<&str> =
                private.iter().filter(|key| !public.contains(key)).map(String::as_str).collect();
            shows_none(&private, &tunnels);
        }
        Err(why) => shows_none(&keys(&text), &one_line(&why)),
    }
}

fn json_again<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let written = serde_json::to_string(value).expect("it was read");
    let read: T = serde_json::from_str(&written).expect("it was written");
    assert_eq!(&read, value);
}

/// `ip -json`: listings of links, routes and rules, a batch of them, and the answer to `route get`.
fn ip_json(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for commands in 0..4 {
        if let Err(why) = split_batch(&text, commands) {
            one_line(&why);
        }
    }
    if let Err(why) = parse_route_get(&text) {
        one_line(&why);
    }
    let Ok(listing) = serde_json::from_str::<Value>(&text) else { return };
    match parse_links(&listing) {
        Ok(links) => links.iter().for_each(json_again),
        Err(why) => drop(one_line(&why)),
    }
    for family in [Family::V4, Family::V6] {
        match parse_rules(&listing, family) {
            Ok(rules) => rules.iter().for_each(|rule| rule_is_sound(rule, &rules)),
            Err(why) => drop(one_line(&why)),
        }
    }
    match parse_routes(&listing, Table(101)) {
        Ok(routes) => routes.iter().for_each(|route| route_is_sound(route, &routes)),
        Err(why) => drop(one_line(&why)),
    }
    black_box(init::parse_neighbours(&listing));
}

/// What can be written can be deleted, and a rule that is not wholly modelled is neither.
fn rule_is_sound(rule: &Rule, all: &[Rule]) {
    json_again(rule);
    assert_eq!(rule.add_args().is_some(), rule.del_args().is_some());
    assert!(!rule.other || rule.add_args().is_none(), "a stranger's rule is written: {rule:?}");
    if let Some(found) = rule.deletes(all) {
        assert_eq!(found.priority, rule.priority);
    }
}

/// The same for a route.
fn route_is_sound(route: &Route, all: &[Route]) {
    json_again(route);
    assert!(!route.other || route.replace_args().is_none(), "a stranger's route: {route:?}");
    if let Some(found) = route.deletes(all) {
        assert_eq!((found.table, found.destination), (route.table, route.destination));
    }
}

/// nft's rules, as text and as JSON.
fn nft_listing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    drop(nft::placement_in(&text));
    black_box(nft::is_open(&text));
    let Ok(listing) = serde_json::from_str::<Value>(&text) else { return };
    let rules = ruleset::parse(&listing);
    let packet = ruleset::Packet {
        iif: "eth1",
        oif: "eth0",
        from: Ipv4Addr::new(10, 77, 0, 11),
        to: Ipv4Addr::new(192, 0, 2, 1),
        mark: 0x4547_0000,
    };
    for chain in rules.chains.iter().take(50) {
        black_box(rules.fate(chain, &packet));
    }
}

/// A body of a core's API.
fn clash_answer(bytes: &[u8]) {
    black_box(clash::version(bytes));
    black_box(clash::provided(bytes));
    black_box(clash::traffic(bytes));
    assert_ne!(clash::delay(bytes), Some(0), "nothing is as fast as that");
    match clash::group(bytes) {
        Ok(group) => assert!(!group.all.is_empty(), "an empty group leads out directly"),
        Err(why) => drop(format!("{why:?}")),
    }
    let path = clash::encoded(&String::from_utf8_lossy(bytes));
    assert!(path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
}

/// What shows a secret in a core's configuration: after it there is nothing of it in what is said.
const SECRET: &str = "s3cr3t-0f-n0b0dy";

/// A core's own configuration, sing-box's or mihomo's, and what `init` makes of it.
fn core_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let hides = |said: &str| assert!(!said.contains(SECRET), "the secret is shown: {said}");
    for program in [Program::SingBox, Program::Mihomo, Program::Other] {
        if let Err(why) = config::read(program, std::slice::from_ref(&text)) {
            hides(&one_line(&why));
        }
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let over = running::overrides(&words).unwrap_or_default();
    let in_file = ("config".to_owned(), text.clone());
    let read_in = || "its file".to_owned();
    let described = [
        sing_box::sing_box(read_in(), std::slice::from_ref(&in_file)),
        sing_box::sing_box(read_in(), &[in_file.clone(), ("a".to_owned(), text.clone())]),
        mihomo::mihomo(read_in(), ("config", &text), Path::new("/"), &Overrides::default()),
        mihomo::mihomo(read_in(), ("config", &text), Path::new("/"), &over),
    ];
    for described in described {
        match described {
            Ok(described) => {
                if let Err(why) = discover::groups(&described.outline, None, None) {
                    one_line(&why);
                }
            }
            Err(why) => hides(&one_line(&why)),
        }
    }
    let core = Core { path: "/etc/sing-box/config.json".into(), text: Ok(text) };
    if let Err(why) = init::draft("selector", &Here { core: Some(core), ..Here::default() }) {
        hides(&one_line(&why));
    }
}

/// A body of gost's API.
fn gost_answer(bytes: &[u8]) {
    for said in [gost::data(bytes).err(), gost::list(bytes).err()].into_iter().flatten() {
        one_line(&said);
    }
    let Ok(Some(object)) = gost::data(bytes) else { return };
    for hop in gost::chain(&object).iter().chain([&gost::hop(&object)]) {
        for node in hop.nodes.iter().take(8) {
            match gost::with_first(&object, node) {
                Ok(written) => assert_eq!(gost::hop(&written).nodes.first(), Some(node)),
                Err(why) => drop(why),
            }
        }
    }
    black_box(gost::service(&object, "chain"));
    drop(gost::with_retries(&object, 2));
    let shown = gost::without_status(&object);
    assert_eq!(gost::difference(&shown, &shown), None, "a thing differs from itself");
}

/// How the target of providers is asked; the first byte of an input chooses.
#[must_use]
pub fn providers() -> Vec<Provider> {
    let identity = serde_json::json!({ "private_key_file": "/k", "address": ["10.5.0.2/32"] });
    let all = serde_json::json!([
        { "directory": { "path": "/srv/all.zip" } },
        { "http": { "url": "https://list.example/", "identity": identity } },
        { "mullvad": { "identity": identity } },
        { "ivpn": { "identity": identity } },
        { "nordvpn": { "identity": identity } },
        { "gluetun": { "provider": "airvpn", "path": "/s.json", "identity": identity } },
        { "hidemyname": { "code_file": "/c", "urls": ["https://list.example/"] } },
    ]);
    serde_json::from_value(all).expect("providers as in a policy")
}

/// A provider's list, of any source.
fn provider_list(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let all = providers();
    let Some(provider) = all.get(usize::from(*first) % all.len()) else { return };
    let question = question(provider.clone());
    let reading = provider::understood(&question, body, OWN_KEY);
    shows_none(&[OWN_KEY], &reading);
    match reading {
        ListReading::Unchanged => {}
        ListReading::Unavailable { why, .. } => drop(one_line(&why)),
        ListReading::Listed { candidates, rejected, .. } => {
            let mut files = std::collections::BTreeSet::new();
            for candidate in candidates.iter() {
                one_line(&candidate.name);
                let file = &candidate.config.file;
                assert!(files.insert(file.to_lowercase()), "{file} would be written twice");
                assert!(!file.contains('/') && !file.starts_with('.'), "{file}");
                assert!(
                    candidate.addresses.iter().all(|net| net.prefix_len() == net.max_prefix_len())
                );
                assert!(candidate.addresses4().next().is_some(), "clients have no other");
                for place in [&candidate.country, &candidate.city].into_iter().flatten() {
                    one_line(place);
                }
            }
            for one in &rejected {
                one_line(&one.name);
                one_line(&one.why);
            }
        }
    }
}

/// A question for this provider's list, for the first time.
#[must_use]
pub fn question(provider: Provider) -> ListQuestion {
    ListQuestion {
        provider,
        wanted: Wanted::default(),
        generation: 1,
        amnezia: true,
        via: None,
        names: BTreeMap::new(),
        known: None,
        have: Arc::default(),
    }
}

/// A policy, a site, a scenario, and the values that stand in them.
fn policy_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Policy::parse(&text) {
        Ok(policy) => {
            policy.notes().iter().map(one_line).for_each(drop);
        }
        Err(fault) => drop(one_line(&fault)),
    }
    if let Err(fault) = Site::parse(&text) {
        one_line(&fault);
    }
    if let Err(fault) = Scenario::parse(&text) {
        one_line(&fault);
    }
    let word = text.trim_end_matches('\n');
    reads_back::<Target>(word);
    reads_back::<Proxy>(word);
    reads_back::<HostName>(word);
    reads_back::<NodeName>(word);
    reads_back::<Interface>(word);
    reads_back::<PolicyName>(word);
    reads_back::<Mark>(word);
}

/// What is understood is the same when it is written and read; what is not is told in a line.
fn reads_back<T>(word: &str)
where
    T: TryFrom<String, Error: Display> + Display + Debug + PartialEq,
{
    match T::try_from(word.to_owned()) {
        Ok(value) => {
            let again = T::try_from(value.to_string());
            assert!(again.is_ok_and(|again| again == value), "{word:?} is not read back");
        }
        Err(why) => drop(one_line_of_a_word(&why)),
    }
}

/// State, journal and bundle, as they lie on disk: what is read is written and read back as the same.
fn state_file(bytes: &[u8]) {
    stored::<pool::state::PoolState>(bytes);
    stored::<selector::state::SelectorState>(bytes);
    stored::<guard::state::GuardState>(bytes);
    stored::<dns::state::DnsState>(bytes);
    stored::<chain::state::ChainState>(bytes);
    let text = String::from_utf8_lossy(bytes);
    match Bundle::parse(&text) {
        Ok(bundle) => {
            json_again(&bundle);
            decide_again(&bundle);
        }
        Err(why) => drop(one_line(&why)),
    }
}

/// No state and no observation, however odd, keeps a machine from a decision.
fn decide_again(bundle: &Bundle) {
    let replayed = match Policy::parse(&bundle.policy_file.to_string()) {
        Err(fault) => Err(fault.to_string()),
        Ok(Policy::Pool(policy)) => replay::<pool::Pool>(&policy, bundle),
        Ok(Policy::Selector(policy)) => replay::<selector::Selector>(&policy, bundle),
        Ok(Policy::Guard(policy)) => replay::<guard::Guard>(&policy, bundle),
        Ok(Policy::Dns(policy)) => replay::<dns::Dns>(&policy, bundle),
        Ok(Policy::Chain(policy)) => replay::<chain::Chain>(&policy, bundle),
    };
    match replayed {
        Ok(replayed) => drop(replayed.differences),
        Err(why) => drop(one_line(&why)),
    }
}

fn stored<S: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(record) = serde_json::from_slice::<Record<S>>(bytes) {
        json_again(&record);
    }
    if let Ok(journal) = serde_json::from_slice::<Journal<S>>(bytes) {
        json_again(&journal);
    }
}

/// What other programs of this machine print or keep: resolv.conf, sockets, units.
fn machine_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    black_box(resolver::parse_servers(&text));
    black_box(resolver::parse_sockets(&text));
    black_box(services::parse_units(&text));
}
