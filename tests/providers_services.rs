//! Lists of services, in each shape that they publish. All servers and keys in them are made up.

use crate::provider_server;

use egressctl::pool::candidate::Candidate;
use provider_server::{Bench, Server, listed, names, ok, private, public, status, unavailable};
use serde_json::{Value, json};

fn service(bench: &Bench, name: &str, server: &Server) -> Value {
    json!({ name: {
        "urls": [server.url("/list")], "identity": bench.identity(), "timeout_sec": 2
    }})
}

/// Name, host, port, country and city of each.
fn told(candidates: &[Candidate]) -> Vec<String> {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    candidates
        .iter()
        .map(|c| {
            assert_eq!(c.ends.own, private(1).public());
            format!("{} {}:{} {} {}", c.name, c.host, c.port, word(&c.country), word(&c.city))
        })
        .collect()
}

#[test]
fn mullvads_shapes_say_the_same() {
    let bench = Bench::new();
    let relay = |n: u32| {
        json!({
            "hostname": format!("se-got-wg-00{n}"), "location": "se-got", "active": n != 3,
            "owned": true, "provider": "x", "ipv4_addr_in": format!("192.0.2.{n}"),
            "ipv6_addr_in": "2001:db8::1", "weight": 100, "include_in_country": true,
            "public_key": public(n), "features": { "daita": {} },
        })
    };
    let location = json!({ "country": "Sweden", "city": "Gothenburg", "latitude": 57.7 });
    let app = json!({
        "locations": { "se-got": location },
        "wireguard": {
            "port_ranges": [[53, 53], [4000, 33433]], "ipv4_gateway": "10.64.0.1",
            "relays": [relay(1), relay(2), relay(3), 7, { "hostname": "se-got-wg-009" }],
        },
        "bridge": { "relays": [] },
    });
    let old = |n: u32| {
        json!({ "hostname": format!("se-got-wg-00{n}"), "public_key": public(n),
                "ipv4_addr_in": format!("192.0.2.{n}"), "ipv6_addr_in": null, "multihop_port": 3000 + n })
    };
    let first = json!({ "countries": [{ "name": "Sweden", "code": "se", "cities": [
        { "name": "Gothenburg", "code": "got", "latitude": 57.7, "relays": [old(1), old(2)] },
        "nonsense",
    ]}]});
    let flat = |n: u32, kind: &str| {
        json!({ "hostname": format!("se-got-wg-00{n}"), "country_name": "Sweden",
                "city_name": "Gothenburg", "active": true, "type": kind,
                "ipv4_addr_in": format!("192.0.2.{n}"), "pubkey": public(n) })
    };
    let flat = json!([flat(1, "wireguard"), flat(5, "openvpn"), flat(2, "wireguard")]);
    let wished = [
        "se-got-wg-001 192.0.2.1:51820 Sweden Gothenburg",
        "se-got-wg-002 192.0.2.2:51820 Sweden Gothenburg",
    ];
    for (list, bad) in [(app, 2), (first, 0), (flat, 0)] {
        let server = Server::saying(list.to_string());
        let provider = service(&bench, "mullvad", &server);
        let (candidates, rejected, _) = listed(bench.ask(&provider));
        assert_eq!(told(&candidates), wished);
        assert_eq!(rejected.len(), bad, "{rejected:?}");
        assert_eq!(candidates[0].ends.peer, public(1));
        let wanted = json!({ "country": ["sweden"], "city": ["GOTHENBURG"], "name": ["*2"] });
        assert_eq!(names(&listed(bench.ask_for(&provider, &wanted)).0), ["se-got-wg-002"]);
    }
    for (text, part) in [
        (r#"{"relays":[]}"#, "neither countries nor wireguard relays"),
        (r#"{"wireguard":{"relays":[]}}"#, "the list is empty"),
        ("<html>", "a page and no list"),
    ] {
        let (why, ..) = unavailable(bench.ask(&service(&bench, "mullvad", &Server::saying(text))));
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn a_list_of_endless_entries_is_read_to_a_bound() {
    let bench = Bench::new();
    let zeros = |n: usize| vec!["0"; n].join(",");
    let gateways = vec![format!(r#"{{"hosts":[{}]}}"#, zeros(9_000)); 50].join(",");
    let ivpn = format!(r#"{{"wireguard":[{gateways}]}}"#);
    let cities = vec![format!(r#"{{"relays":[{}]}}"#, zeros(9_000)); 50].join(",");
    let mullvad = format!(r#"{{"countries":[{{"cities":[{cities}]}}]}}"#);
    for (name, list) in [("ivpn", ivpn), ("mullvad", mullvad)] {
        let mut provider = service(&bench, name, &Server::saying(list));
        provider[name]["timeout_sec"] = json!(20);
        let (candidates, rejected, _) = listed(bench.ask(&provider));
        assert!(candidates.is_empty() && (10_001..20_000).contains(&rejected.len()));
    }
}

#[test]
fn a_code_of_a_place_is_as_good_as_its_name() {
    let bench = Bench::new();
    let list = json!({
        "locations": { "se-got": { "country": "Sweden", "city": "Gothenburg" } },
        "wireguard": { "relays": [{ "hostname": "a", "location": "se-got",
                                    "ipv4_addr_in": "192.0.2.1", "public_key": public(1) }] },
    });
    let mut provider = service(&bench, "mullvad", &Server::saying(list.to_string()));
    provider["mullvad"]["port"] = json!(53);
    let (candidates, ..) =
        listed(bench.ask_for(&provider, &json!({ "country": ["SE"], "city": ["got"] })));
    assert_eq!(told(&candidates), ["a 192.0.2.1:53 Sweden Gothenburg"]);
}

#[test]
fn ivpns_hosts_are_taken_from_their_gateways() {
    let bench = Bench::new();
    let host = |n: u32| {
        json!({ "hostname": format!("nl{n}.gw.example"), "dns_name": "x", "host": format!("192.0.2.{n}"),
                "public_key": public(n), "local_ip": "172.16.0.1/12", "multihop_port": 21407,
                "ipv6": { "local_ip": "fd00::1/64" }, "load": 12.5 })
    };
    let list = json!({
        "wireguard": [
            { "gateway": "nl.wg.example", "country_code": "NL", "country": "Netherlands",
              "city": "Amsterdam", "hosts": [host(1), host(2), { "hostname": "half" }, []] },
            null,
        ],
        "openvpn": [{ "gateway": "nl.gw.example", "hosts": [{ "hostname": "x", "host": "192.0.2.9" }] }],
        "config": {},
    });
    let provider = service(&bench, "ivpn", &Server::saying(list.to_string()));
    let (candidates, rejected, _) = listed(bench.ask(&provider));
    let wished = [
        "nl1.gw.example 192.0.2.1:58237 Netherlands Amsterdam",
        "nl2.gw.example 192.0.2.2:58237 Netherlands Amsterdam",
    ];
    assert_eq!(told(&candidates), wished);
    assert_eq!(rejected.len(), 3, "{rejected:?}");
    let (candidates, ..) = listed(bench.ask_for(&provider, &json!({ "country": ["nl"] })));
    assert_eq!(candidates.len(), 2);
    let other = service(&bench, "ivpn", &Server::saying(r#"{"servers":[]}"#));
    assert!(unavailable(bench.ask(&other)).0.contains("no wireguard servers"));
}

#[test]
fn nordvpns_shapes_say_the_same() {
    let bench = Bench::new();
    // The address of every client is known.
    let key = private(1).reveal();
    let identity =
        json!({ "private_key_file": bench.put("unpadded", key.strip_suffix('=').unwrap()) });
    let country =
        json!({ "id": 208, "name": "Sweden", "code": "SE", "city": { "id": 1, "name": "Malmö" } });
    let location = json!({ "id": 55, "latitude": 1.5, "country": country });
    let metadata = |n: u32| {
        json!([{ "name": "proxy_hostname", "value": "p.example" },
               { "name": "public_key", "value": public(n) }])
    };
    let first = |n: u32, online: &str, technology: &str| {
        json!({
            "id": n, "name": format!("Sweden #{n}"), "station": format!("192.0.2.{n}"),
            "hostname": format!("se{n}.example"), "load": 12, "status": online,
            "locations": [location],
            "technologies": [
                { "id": 3, "identifier": "openvpn_udp", "metadata": [] },
                { "id": 35, "identifier": technology, "metadata": metadata(n) },
            ],
        })
    };
    let v1 = json!([
        first(1, "online", "wireguard_udp"),
        first(2, "offline", "wireguard_udp"),
        first(3, "online", "ikev2"),
        first(4, "online", "wireguard_udp"),
    ]);
    let second = |n: u32, online: &str, technology: u32| {
        json!({
            "id": n, "name": format!("Sweden #{n}"), "station": format!("192.0.2.{n}"),
            "hostname": format!("se{n}.example"), "status": online, "location_ids": [55],
            "group_ids": [1], "ips": [{ "type": "entry", "ip": { "ip": format!("192.0.2.{n}") } }],
            "technologies": [
                { "id": 3, "status": "online" },
                { "id": technology, "status": online, "metadata": metadata(n) },
            ],
        })
    };
    // One that is up, and whose daemon for WireGuard is not.
    let mut half = second(5, "online", 35);
    half["technologies"][1]["status"] = json!("offline");
    let v2 = json!({
        "servers": [second(1, "online", 35), second(2, "offline", 35), second(3, "online", 7), second(4, "online", 35), half],
        "groups": [], "services": [], "locations": [location],
        "technologies": [{ "id": 3, "identifier": "openvpn_udp" }, { "id": 35, "identifier": "wireguard_udp" }],
    });
    for list in [v1, v2] {
        let mut provider = service(&bench, "nordvpn", &Server::saying(list.to_string()));
        provider["nordvpn"]["identity"] = identity.clone();
        let (candidates, rejected, _) =
            listed(bench.ask_for(&provider, &json!({ "country": ["se"] })));
        let wished = [
            "se1.example 192.0.2.1:51820 Sweden Malmö",
            "se4.example 192.0.2.4:51820 Sweden Malmö",
        ];
        assert_eq!((told(&candidates), rejected), (wished.map(str::to_owned).into(), vec![]));
        assert_eq!(candidates[0].addresses, ["10.5.0.2/32".parse().unwrap()].into());
        assert_eq!(candidates[1].ends.peer, public(4));
    }
}

#[test]
fn nordvpn_tells_the_key_to_whom_shows_the_token_and_to_nobody_else() {
    let bench = Bench::new();
    let list = json!([{
        "id": 1, "hostname": "se1.example", "station": "192.0.2.1", "status": "online",
        "technologies": [{ "identifier": "wireguard_udp",
                           "metadata": [{ "name": "public_key", "value": public(1) }] }],
    }]);
    let told = json!({ "id": 7, "nordlynx_private_key": private(1).reveal(), "username": "x" });
    let good = told.to_string();
    for (answer, part) in [
        (ok(good), ""),
        (status(401, ""), "answers 401: the token or code is refused"),
        (ok(r#"{"nordlynx_private_key":"short"}"#), "it tells no key"),
        (ok(r#"{"id":7}"#), "is the subscription valid?"),
        (ok("<html>"), "it is a page"),
    ] {
        let (list, answer) = (list.to_string(), std::sync::Mutex::new(Some(answer)));
        let server = Server::new(move |asked| match asked.path.as_str() {
            "/key" => answer.lock().unwrap().take().unwrap_or_else(|| status(500, "")),
            _ => ok(list.clone()),
        });
        let provider = json!({ "nordvpn": {
            "urls": [server.url("/list")], "token_file": bench.path("token"),
            "credentials_url": server.url("/key"), "timeout_sec": 2,
        }});
        let reading = bench.ask(&provider);
        let asked = server.asked();
        // `token:s3cret-token` in base64.
        let basic = "Basic dG9rZW46czNjcmV0LXRva2Vu";
        assert_eq!(
            (asked[0].path.as_str(), asked[0].headers["authorization"].as_str()),
            ("/key", basic)
        );
        if part.is_empty() {
            let (candidates, _, _) = listed(reading);
            assert_eq!(names(&candidates), ["se1.example"]);
            assert_eq!(candidates[0].ends.own, private(1).public());
            assert_eq!(candidates[0].addresses, ["10.5.0.2/32".parse().unwrap()].into());
            assert!(!asked[1].headers.contains_key("authorization"), "{:?}", asked[1]);
        } else {
            let (why, ..) = unavailable(reading);
            assert!(why.contains(part), "{part}: {why}");
            assert_eq!(asked.len(), 1, "without a key no list is asked for");
        }
    }
}

fn gluetun_servers() -> Value {
    let server = |n: u32, more: Value| {
        let mut one = json!({
            "vpn": "wireguard", "country": "Sweden", "city": "Malmö",
            "hostname": format!("se{n}.example"), "wgpubkey": public(n),
            "ips": ["2001:db8::1", format!("192.0.2.{n}")],
        });
        for (key, value) in more.as_object().unwrap() {
            one[key] = value.clone();
        }
        one
    };
    json!({
        "version": 4, "timestamp": 1_700_000_000,
        "servers": [
            server(1, json!({})),
            server(2, json!({ "vpn": "openvpn", "tcp": true })),
            server(3, json!({ "server_name": "SE#3", "region": "x" })),
            server(4, json!({ "ips": [] })),
            server(5, json!({ "wgpubkey": "" })),
            server(6, json!({ "ips": "192.0.2.6", "hostname": "" })),
        ],
    })
}

const GLUETUN: [&str; 4] = [
    "se1.example 192.0.2.1:1637 Sweden Malmö",
    "SE#3 192.0.2.3:1637 Sweden Malmö",
    "se4.example se4.example:1637 Sweden Malmö",
    "airvpn 6 192.0.2.6:1637 Sweden Malmö",
];

#[test]
fn gluetuns_file_is_read_in_all_its_forms() {
    let bench = Bench::new();
    let servers = gluetun_servers();
    let folder = bench.path("gluetun");
    std::fs::create_dir_all(folder.join("servers")).unwrap();
    let flat = json!({ "version": 1, "airvpn": servers, "mullvad": { "servers": [] } });
    let manifest =
        json!({ "version": 1, "airvpn": { "filepath": "/gluetun/servers/airvpn.json" } });
    std::fs::write(folder.join("servers/airvpn.json"), servers.to_string()).unwrap();
    std::fs::write(folder.join("flat.json"), flat.to_string()).unwrap();
    std::fs::write(folder.join("servers.json"), manifest.to_string()).unwrap();
    for file in ["flat.json", "servers.json", "servers/airvpn.json"] {
        let provider = json!({ "gluetun": {
            "provider": "airvpn", "path": folder.join(file), "identity": bench.identity()
        }});
        let (candidates, rejected, _) = listed(bench.ask(&provider));
        assert_eq!(told(&candidates), GLUETUN, "{file}");
        assert_eq!(rejected.len(), 1, "{rejected:?}");
    }
    let (manifest, data) = (manifest.to_string(), servers.to_string());
    let server = Server::new(move |asked| match asked.path.as_str() {
        "/x/servers.json?v=a/1" => ok(manifest.clone()),
        "/x/airvpn.json" => ok(data.clone()),
        _ => status(404, ""),
    });
    let provider = json!({ "gluetun": {
        "provider": "airvpn", "url": server.url("/x/servers.json?v=a/1"),
        "identity": bench.identity(), "port": 1637,
    }});
    assert_eq!(told(&listed(bench.ask(&provider)).0), GLUETUN);
}

#[test]
fn a_manifest_leads_nowhere_but_beside_itself() {
    let bench = Bench::new();
    for (file, part) in [
        (json!({ "version": 1 }), "no servers of airvpn"),
        (json!({ "airvpn": { "filepath": "/x/.." } }), "and no file of them"),
        (json!({ "airvpn": { "filepath": "/x/a b" } }), "and no file of them"),
        (json!({ "airvpn": { "filepath": "../../../etc/shadow" } }), "shadow: No such file"),
        (json!({ "airvpn": { "filepath": "servers.json" } }), "points to another file again"),
        (json!([]), "not the shape of a list"),
    ] {
        let path = bench.put("servers.json", file.to_string());
        let provider = json!({ "gluetun": {
            "provider": "airvpn", "path": path, "identity": bench.identity()
        }});
        let (why, ..) = unavailable(bench.ask(&provider));
        assert!(why.contains(part), "{part}: {why}");
    }
    let circle = Server::saying(r#"{"airvpn":{"filepath":"x.json"}}"#);
    let provider = json!({ "gluetun": {
        "provider": "airvpn", "url": circle.url("/"), "identity": bench.identity()
    }});
    let (why, ..) = unavailable(bench.ask(&provider));
    assert!(why.contains("points to another file, as did the first"), "{why}");
    assert_eq!(circle.asked()[1].path, "/x.json");
}
