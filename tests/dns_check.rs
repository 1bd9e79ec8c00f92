//! `check` of a policy of host names: each lack is found under its own code, with what mends it.

use crate::dns_bench;
use crate::dns_world;

use dns_bench::server::{NameServer, Server};
use dns_bench::{LiveNode, Place, Reference, Serves};
use dns_world::{Lab, Life, Online, host, node, policy, set};
use egressctl::check::any::Stepped;
use egressctl::check::dns::{DnsFacts, findings, needs, probes};
use egressctl::check::provider::File;
use egressctl::check::{Finding, ProbeResult};
use egressctl::dns::DnsState;
use egressctl::dns::record::Record;
use egressctl::policy::Policy;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FI: &str = "fi.example.org";

/// A policy with which nothing is wrong: resolvers keep its records no longer than a round.
fn sound() -> Lab {
    let hosts = json!({ FI: { "native": "fi", "fallbacks": ["de", "us"], "ttl": 30 } });
    let mut lab = Lab::new(policy(3, &hosts, &json!({})));
    short(&mut lab, &["192.0.2.1"]);
    lab
}

/// The record, as the policy would write it.
fn short(lab: &mut Lab, addresses: &[&str]) {
    let mut records = set(addresses);
    records.0 = records.0.into_iter().map(|record| Record { ttl: 30, ..record }).collect();
    lab.records.insert(host(FI), Some(records));
}

fn facts<T>(lab: &Lab, files: Vec<File>, judge: impl FnOnce(&DnsFacts<'_>) -> T) -> T {
    let (seen, _) = lab.decide();
    let record = egressctl::record::Record::<DnsState>::default();
    judge(&DnsFacts {
        stepped: Stepped {
            name: &lab.name,
            path: Path::new("/etc/egressctl/names.json"),
            interval: Duration::from_secs(30),
            now: &lab.now,
            record: &record,
            damaged: None,
            foreign: None,
            is_in_flight: false,
            folder: None,
            seen: &seen,
            unable: &[],
            blind: None,
        },
        policy: &lab.policy,
        files,
    })
}

fn found(lab: &Lab) -> Vec<Finding> {
    facts(lab, Vec::new(), findings)
}

/// The one finding, under this code; it and its mend hold these words.
#[track_caller]
fn one(lab: &Lab, code: &str, what: &str, mend: &str) {
    let all = found(lab);
    let [finding] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!(finding.code.as_str(), code);
    assert!(finding.what.contains(what), "{finding:#?}");
    assert!(finding.mend.contains(mend), "{finding:#?}");
}

#[test]
fn a_sound_policy_has_no_findings_and_shows_its_probes() {
    assert_eq!(found(&sound()), []);
    let mut lab = sound();
    lab.set(&["us"], Life::Dead);
    lab.set(&["de"], Life::Unseen);
    let seen = facts(&lab, Vec::new(), probes);
    let told: Vec<(&str, ProbeResult)> =
        seen.iter().map(|probe| (probe.probe.as_str(), probe.result)).collect();
    assert_eq!(
        told,
        [
            ("reference", ProbeResult::Passed),
            ("de", ProbeResult::Unknown),
            ("fi", ProbeResult::Passed),
            ("us", ProbeResult::Failed),
        ]
    );
}

#[test]
fn a_record_that_a_step_would_leave_alone_is_found() {
    let mut lab = sound();
    lab.edit(FI, &[]);
    one(
        &lab,
        "record-missing",
        "has no record of type A",
        "make one: fi.example.org. 30 IN A 192.0.2.1",
    );
    short(&mut lab, &["192.0.2.1", "192.0.2.2"]);
    one(&lab, "record-several", "records is 1", "\"records\": 2");
    lab.policy.hosts.get_mut(&host(FI)).unwrap().records = 2;
    assert_eq!(found(&lab), [], "the policy says so");
    short(&mut lab, &["198.51.100.9"]);
    one(&lab, "record-foreign", "none of its nodes", "egressctl resume names fi.example.org");
    lab.records.insert(host(FI), None);
    one(&lab, "record-unreadable", "fi.example.org: no answer", "kdig +tcp -p 53 @192.0.2.53");
}

#[test]
fn hosts_that_cannot_be_read_for_one_reason_are_told_together() {
    let each = json!({ "native": "fi", "fallbacks": ["de"], "ttl": 30 });
    let hosts = json!({ "a.example.org": each, "b.example.org": each, "c.example.org": each });
    let mut lab = Lab::new(policy(3, &hosts, &json!({})));
    for name in ["a.example.org", "b.example.org", "c.example.org"] {
        lab.records.insert(host(name), None);
    }
    one(&lab, "record-unreadable", "a.example.org and 2 hosts: no answer", "");
}

#[test]
fn what_makes_a_move_slow_or_not_last_is_found() {
    let mut lab = sound();
    lab.edit(FI, &["192.0.2.1"]);
    one(&lab, "ttl-long", "ttl 120, and the policy wants 30", "set it to 30");
    let mut records = set(&["192.0.2.1"]);
    records.0 = records.0.into_iter().map(|record| Record { proxied: true, ..record }).collect();
    lab.records.insert(host(FI), Some(records));
    assert_eq!(found(&lab), [], "of a proxied record clients see the provider's address");

    let mut lab = sound();
    lab.policy.hosts.get_mut(&host(FI)).unwrap().ttl = 120;
    one(&lab, "ttl-slow", "60 s of checks and 120 s more", "\"ttl\": 30");
    lab.policy.params.minimum_stay_sec = 239;
    let codes: Vec<String> = found(&lab).iter().map(|f| f.code.to_string()).collect();
    assert_eq!(codes, ["stay-short", "ttl-slow"]);

    let mut lab = sound();
    lab.policy.hosts.get_mut(&host(FI)).unwrap().fallbacks.clear();
    one(
        &lab,
        "no-fallback",
        "fi.example.org has no fallback",
        "hosts.\"fi.example.org\".fallbacks",
    );
}

#[test]
fn nodes_that_do_not_serve_are_found() {
    let mut lab = sound();
    lab.set(&["us"], Life::Dead);
    one(&lab, "node-silent", "node us at 192.0.2.3: silent", "nodes.us");
    lab.set(&["us"], Life::Unseen);
    one(&lab, "node-unjudged", "it could not be asked", "nodes.us.check");
    lab.set(&["us"], Life::OwnNameOnly);
    one(
        &lab,
        "fallback-unfit",
        "us does not serve fi.example.org in place of fi: its certificate is for another name",
        "openssl s_client -connect 192.0.2.3:443 -servername fi.example.org",
    );
}

#[test]
fn a_silent_reference_is_the_uplinks_trouble() {
    let mut lab = sound();
    lab.online = Online::No;
    lab.set(&["fi", "de", "us"], Life::Dead);
    one(&lab, "wan-silent", "the reference", "reference.urls");
}

#[test]
fn more_requests_than_the_provider_takes_are_found_before_it_refuses_them() {
    let lab = |zone: &str, hosts: usize| {
        let one = json!({ "native": "fi", "fallbacks": ["de"], "ttl": 60 });
        let hosts: serde_json::Map<String, Value> =
            (0..hosts).map(|n| (format!("h{n}.example.org"), one.clone())).collect();
        let mut lab =
            Lab::new(policy(2, &Value::Object(hosts), &json!({ "check_interval_sec": 60 })));
        let driver = json!({ "cloudflare": { "zone": zone, "token_file": "/t" } });
        let all = lab.records.clone();
        lab.policy = dns_world::parse(&json!({
            "kind": "dns", "driver": driver, "reference": { "urls": ["https://192.0.2.200/"] },
            "nodes": { "fi": { "address": "192.0.2.1", "check": { "tls": { "name": "fi.example.org" } } },
                       "de": { "address": "192.0.2.2", "check": { "tls": { "name": "de.example.org" } } } },
            "hosts": lab.policy.hosts.keys().map(|name| (name.to_string(), one.clone())).collect::<serde_json::Map<_, _>>(),
            "params": { "check_interval_sec": 60 },
        }));
        lab.records = all
            .into_iter()
            .map(|(name, records)| {
                let short = |r: Record| Record { ttl: 60, ..r };
                let records = records.map(|mut set| {
                    set.0 = set.0.into_iter().map(short).collect();
                    set
                });
                (name, records)
            })
            .collect();
        lab
    };
    assert_eq!(found(&lab("example.org", 199)), []);
    one(&lab("example.org", 200), "api-rate", "1005 requests", "\"check_interval_sec\": 61");
    assert_eq!(found(&lab("023e105f4ecef8ad9ca31a8372d0c353", 200)), []);
    one(
        &lab("023e105f4ecef8ad9ca31a8372d0c353", 201),
        "api-rate",
        "1005",
        "\"check_interval_sec\": 61",
    );
}

#[test]
fn files_of_secrets_and_the_tool_are_needed() {
    let lab = sound();
    let told = |seen: Result<u32, &str>| {
        let file = File {
            key: "driver.rfc2136.key_file".to_owned(),
            path: PathBuf::from("/etc/egressctl/key"),
            is_secret: true,
            seen: seen.map_err(str::to_owned),
        };
        let all = facts(&lab, vec![file], findings);
        all.into_iter().map(|f| (f.code.to_string(), f.mend)).collect::<Vec<_>>()
    };
    let of = |code: &str, mend: &str| vec![(code.to_owned(), mend.to_owned())];
    assert_eq!(told(Ok(0o100_600)), []);
    assert_eq!(told(Ok(0o100_640)), of("secret-open", "chmod 600 /etc/egressctl/key"));
    let missing =
        "install -m 600 /dev/stdin /etc/egressctl/key, and give the TSIG key on its standard input";
    assert_eq!(told(Err("there is no such file")), of("secret-missing", missing));
    let needs = needs(&lab.name, &lab.policy, Duration::from_secs(30));
    assert_eq!(needs.tools, ["knsupdate"].into());
    assert!(lab.policy.nodes.contains_key(&node("fi")));
}

#[test]
fn names_and_addresses_that_contradict_each_other_make_a_policy_invalid() {
    let policy = |zone: &str, address: &str| {
        json!({ "kind": "dns", "driver": { "cloudflare": { "zone": zone, "token_file": "/t" } },
                "nodes": { "fi": { "address": "192.0.2.1", "check": { "tcp": { "port": 1 } } },
                           "de": { "address": address, "check": { "tcp": { "port": 1 } } } },
                "hosts": { "a.badexample.org": { "native": "fi", "fallbacks": ["de"] } } })
        .to_string()
    };
    Policy::parse(&policy("badexample.org", "192.0.2.2")).unwrap();
    for (zone, address, said) in [
        ("example.org", "192.0.2.2", "host a.badexample.org is not in zone example.org"),
        ("badexample.org", "192.0.2.1", "have the same address 192.0.2.1"),
        ("badexample.org", "0.0.0.0", "is no machine's"),
        ("badexample.org", "224.0.0.1", "is no machine's"),
        ("badexample.org", "255.255.255.255", "is no machine's"),
    ] {
        let fault = Policy::parse(&policy(zone, address)).unwrap_err().to_string();
        assert!(fault.contains(said), "{fault}");
    }
}

/// What the program finds, by code.
fn checked(place: &Place) -> (i32, Vec<(String, String)>) {
    let ran = place.run(&["check", "names", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let all = report["findings"].as_array().unwrap();
    (ran.code, all.iter().map(|one| (text(one, "code"), text(one, "what"))).collect())
}

#[test]
fn the_program_finds_what_is_wrong_changes_nothing_and_is_content_once_it_is_mended() {
    let server = NameServer::new(Server::Knot);
    let place = Place::new();
    let native = LiveNode::new(41, 0, Serves::Tcp);
    let _fallback = LiveNode::new(44, native.port, Serves::Tcp);
    let reference = Reference::new();
    let key = server.folder.path().join("key");
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let write = |zone_server: &str, key_file: &Path| {
        let check = json!({ "tcp": { "port": native.port } });
        place.write(&json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": zone_server, "zone": "example.org", "key_file": key_file } },
            "nodes": { "fi": { "address": "127.0.0.41", "check": check }, "de": { "address": "127.0.0.44", "check": check } },
            "hosts": { FI: { "native": "fi", "fallbacks": ["de"], "ttl": 300 } },
            "reference": { "urls": [reference.url()] },
            "params": { "check_interval_sec": 300, "minimum_stay_sec": 600 },
        }));
    };
    // Of the machine that the test runs on, only what concerns the policy is looked at.
    let of_ours = |place: &Place| {
        let (code, all) = checked(place);
        let ours = [
            "secret-",
            "record-",
            "ttl-",
            "node-",
            "fallback-",
            "tool-missing",
            "publish-dir",
            "page-",
        ];
        let all: Vec<(String, String)> = all
            .into_iter()
            .filter(|(code, _)| ours.iter().any(|our| code.starts_with(our)))
            .collect();
        (code, all)
    };
    let at = server.at().to_string();
    mode(0o644);
    write(&at, &key);
    let (code, all) = of_ours(&place);
    assert_eq!((code, all.len(), all[0].0.as_str()), (1, 1, "secret-open"), "{all:?}");
    mode(0o600);
    assert_eq!(of_ours(&place).1, []);
    write(&at, Path::new("/nonexistent/key"));
    assert_eq!(of_ours(&place).1[0].0, "secret-missing");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    write(&gone.to_string(), &key);
    let (_, all) = of_ours(&place);
    assert!(all.len() == 1 && all[0].0 == "record-unreadable", "{all:?}");
    write(&at, &key);
    let site =
        |text: Value| std::fs::write(place.path("policies/site.json"), text.to_string()).unwrap();
    site(json!({ "kind": "site", "publish_dir": place.path("www") }));
    let (_, all) = of_ours(&place);
    assert!(all.len() == 1 && all[0].0 == "publish-dir", "{all:?}");
    site(json!({ "kind": "site", "page": place.path("www/index.html") }));
    let (_, all) = of_ours(&place);
    assert!(all.len() == 1 && all[0].0 == "page-folder", "{all:?}");
    let told = format!("the folder of page, {}: No such file", place.path("www").display());
    assert!(all[0].1.contains(&told), "{all:?}");
    std::fs::create_dir(place.path("www")).unwrap();
    assert_eq!(of_ours(&place).1, []);
    site(json!({ "kind": "site", "publish_dir": "www" }));
    let ran = place.run(&["check", "names"]);
    assert!(ran.code == 2 && ran.stderr.contains("is not absolute"), "{ran:?}");
    assert!(!place.path("state").exists(), "nothing was made");
    assert_eq!(server.serial(), 100, "nothing was written");
}
