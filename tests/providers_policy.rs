//! What a policy may say of a provider, and what is said of one that contradicts itself.

use egressctl::policy::Policy;
use egressctl::policy::provider::{Provider, SpreadBy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn parsed(provider: &Value, tool: &str) -> Result<Provider, String> {
    let policy = json!({
        "kind": "pool", "slots": { "interfaces": ["vpn1"] }, "clients": ["10.77.0.11"],
        "provider": provider, "wireguard": { "tool": tool },
    });
    let policy = Policy::parse(&policy.to_string()).map_err(|why| why.to_string())?;
    let Policy::Pool(policy) = policy else { panic!("it is a pool") };
    Ok(policy.provider)
}

fn good(provider: &Value) -> Provider {
    parsed(provider, "wg").unwrap()
}

fn own() -> Value {
    json!({ "private_key_file": "/k", "address": ["10.64.0.2"] })
}

#[test]
fn each_provider_says_where_it_is_asked() {
    let cases = [
        (json!({ "directory": { "path": "/e" } }), true, vec![]),
        (json!({ "exec": { "path": "/bin/list" } }), true, vec![]),
        (
            json!({ "gluetun": { "provider": "ivpn", "path": "/s", "identity": own() } }),
            true,
            vec![],
        ),
        (
            json!({ "gluetun": { "provider": "ivpn", "identity": own() } }),
            false,
            vec!["raw.githubusercontent.com"],
        ),
        (
            json!({ "http": { "url": "https://b.example/", "urls": ["https://a.example/x", "http://192.0.2.1/"] } }),
            false,
            vec!["a.example", "b.example"],
        ),
        (json!({ "mullvad": { "identity": own() } }), false, vec!["api.mullvad.net"]),
        (json!({ "ivpn": { "identity": own() } }), false, vec!["api.ivpn.net"]),
        (
            json!({ "nordvpn": { "identity": { "private_key_file": "/k" } } }),
            false,
            vec!["api.nordvpn.com"],
        ),
        (json!({ "nordvpn": { "token_file": "/t" } }), false, vec!["api.nordvpn.com"]),
        (
            json!({ "hidemyname": { "code_file": "/c", "urls": ["https://a.example"] } }),
            false,
            vec!["a.example"],
        ),
    ];
    for (text, is_local, hosts) in cases {
        let provider = good(&text);
        assert_eq!(
            (provider.is_local(), provider.hosts()),
            (is_local, hosts.into_iter().map(str::to_owned).collect()),
            "{text}"
        );
        assert!(!provider.needs_tunnel());
    }
    let http = json!({ "http": { "url": "https://a.example/", "via": "tunnel" } });
    assert!(good(&http).needs_tunnel());
    assert_eq!(good(&json!({ "hidemyname": { "code_file": "/c" } })).hosts().len(), 3);
}

#[test]
fn a_provider_that_cannot_be_asked_is_refused_with_what_to_write() {
    let http = |key: &str, value: Value| {
        let mut http = json!({ "http": { "url": "https://a.example/" } });
        http["http"][key] = value;
        http
    };
    let site = |key: &str, value: Value| {
        let mut site = json!({ "hidemyname": { "code_file": "/c" } });
        site["hidemyname"][key] = value;
        site
    };
    for (provider, part) in [
        (json!({ "directory": { "path": "e" } }), "provider.directory.path \"e\" is not absolute"),
        (json!({ "http": {} }), "provider.http has no url"),
        (http("url", json!("ftp://a.example")), "begins with http:// or https://"),
        (http("token_file", json!("t")), "provider.http.token_file \"t\" is not absolute"),
        (http("ca_file", json!("t")), "provider.http.ca_file \"t\" is not absolute"),
        (http("timeout_sec", json!(0)), "timeout_sec is 0"),
        (http("via", json!("wan")), "unknown variant `wan`"),
        (http("tokn_file", json!("/t")), "did you mean \"token_file\"?"),
        (http("token", json!("secret")), "unknown key \"token\""),
        (
            json!({ "http": { "url": "http://a.example/", "token_file": "/t" } }),
            "would be sent to a.example in clear",
        ),
        (json!({ "exec": { "path": "list" } }), "provider.exec.path \"list\" is not absolute"),
        (json!({ "exec": { "path": "/a=b" } }), "has a ="),
        (json!({ "exec": { "path": "/a", "timeout_sec": 0 } }), "timeout_sec is 0"),
        (json!({ "mullvad": {} }), "missing field `identity`"),
        (
            json!({ "mullvad": { "identity": { "private_key_file": "/k" } } }),
            "provider.mullvad.identity.address has no IPv4 address",
        ),
        (
            json!({ "mullvad": { "identity": { "private_key_file": "/k", "address": ["x"] } } }),
            "\"x\" is no address",
        ),
        (
            json!({ "nordvpn": { "urls": ["https://a.example/"] } }),
            "provider.nordvpn has neither identity nor token_file",
        ),
        (
            json!({ "nordvpn": { "identity": { "private_key_file": "/k" }, "token_file": "/t" } }),
            "write one of them",
        ),
        (
            json!({ "nordvpn": { "token_file": "t" } }),
            "provider.nordvpn.token_file \"t\" is not absolute",
        ),
        (
            json!({ "nordvpn": { "token_file": "/t", "credentials_url": "http://a.example/" } }),
            "token_file would be sent to credentials_url in clear",
        ),
        (
            json!({ "ivpn": { "identity": { "private_key_file": "k", "address": ["10.0.0.2"] } } }),
            "provider.ivpn.identity.private_key_file \"k\" is not absolute",
        ),
        (json!({ "gluetun": { "provider": "../x", "identity": own() } }), "none of gluetun's"),
        (json!({ "gluetun": { "provider": "newvpn", "identity": own() } }), "port is missing"),
        (
            json!({ "gluetun": { "provider": "ivpn", "path": "/s", "url": "https://a.example/", "identity": own() } }),
            "a path and a url",
        ),
        (site("urls", json!([])), "urls is empty"),
        (
            site("urls", json!(["http://a.example"])),
            "code_file would be sent to a.example in clear",
        ),
        (site("list_path", json!("@evil.example/")), "list_path is no path"),
        (site("config_path", json!("b.example/x")), "config_path is no path"),
        (site("awg", json!(2)), "write 0, 1 or 4"),
        (site("awg", json!(4)), "set wireguard.tool to awg"),
        (site("batch", json!(0)), "batch must be from 1 to 500"),
        (json!({ "surfshark": {} }), "unknown variant `surfshark`"),
    ] {
        let why = parsed(&provider, "wg").unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{part}: {why}");
        assert!(!why.contains("secret"), "{why}");
    }
    assert!(parsed(&site("awg", json!(4)), "awg").is_ok());
}

#[test]
fn what_is_wanted_stands_beside_the_provider() {
    let text = json!({
        "kind": "pool", "slots": { "interfaces": ["vpn1"] }, "clients": ["10.77.0.11"],
        "provider": { "directory": { "path": "/e" } },
        "candidates": { "country": ["SE"], "exclude": ["*-x"], "spread_by": "city" },
    });
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).unwrap() else {
        panic!("it is a pool")
    };
    assert_eq!(policy.candidates.country, ["SE"]);
    assert_eq!(policy.candidates.spread_by, Some(SpreadBy::City));
}

#[test]
fn each_provider_has_an_example() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let mut shown = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file()
            && let Ok(Policy::Pool(pool)) = Policy::parse(&std::fs::read_to_string(path).unwrap())
        {
            shown.insert(pool.provider.key());
        }
    }
    let all = ["directory", "exec", "gluetun", "hidemyname", "http", "ivpn", "mullvad", "nordvpn"];
    assert_eq!(shown, all.into());
}
