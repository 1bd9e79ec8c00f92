//! What is found in the files of sing-box and mihomo, and by their processes.

use egressctl::clash::discover::{Described, Secret};
use egressctl::clash::mihomo::{Overrides, mihomo};
use egressctl::clash::running::{self, Running};
use egressctl::clash::sing_box::sing_box;
use egressctl::observation::{CoreFault, Outline, Program};
use egressctl::setting::Control;
use std::path::Path;

fn sing_box_of(texts: &[(&str, &str)]) -> Result<Described, String> {
    let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    sing_box("the files".to_owned(), &texts.iter().map(own).collect::<Vec<_>>())
}

fn mihomo_of(text: &str) -> Result<Described, String> {
    let home = Path::new("/etc/mihomo");
    mihomo("the file".to_owned(), ("config.yaml", text), home, &Overrides::default())
}

fn control(outline: &Outline) -> String {
    match &outline.control {
        Ok(Control::Http(url)) => url.as_str().to_owned(),
        Ok(Control::Unix(path)) => path.display().to_string(),
        Ok(Control::Found(_)) => "found".to_owned(),
        Err(why) => why.clone(),
    }
}

fn proxies(outline: &Outline) -> Vec<String> {
    outline.proxies.iter().map(ToString::to_string).collect()
}

fn bearer(described: &Described) -> Option<String> {
    described.secret.as_ref().map(Secret::bearer)
}

/// As it is made by hand and by generators, with what sing-box allows beside JSON.
const SING_BOX: &str = r#"{
  // made by hand
  "log": { "level": "warn" },
  "inbounds": [
    { "type": "tun", "tag": "tun-in", "address": "172.19.0.1/30", "auto_route": true },
    { "type": "socks", "tag": "socks-in", "listen": "::", "listen_port": 2333 },
    { "type": "http", "tag": "lan-in", "listen": "192.168.1.1", "listen_port": 2334 },
    { "type": "mixed", "tag": "mixed-in", "listen": "::1", "listen_port": 2080 },
    { "type": "http", "tag": "http-in", "listen_port": 2082, },
    { "type": "mixed", "tag": "test-in", "listen": "127.0.0.1", "listen_port": 2083 },
    { "type": "mixed", "tag": "kept", "listen": "127.0.0.1", "listen_port": 2084, "users": [{ "username": "u", "password": "p" }] },
    { "type": "http", "tag": "tls", "listen": "127.0.0.1", "listen_port": 2085, "tls": { "enabled": true } }, /* the last */
  ],
  "outbounds": [
    { "type": "direct", "tag": "direct" },
    { "type": "selector", "tag": "Proxy", "outbounds": ["auto", "hk // 1", "direct"], "default": "auto" },
    { "type": "selector", "tag": "Video", "outbounds": ["auto", "Proxy"] },
    { "type": "urltest", "tag": "auto", "outbounds": ["hk // 1"] }, # the automatic one
    { "type": "shadowsocks", "tag": "hk // 1", "server": "192.0.2.1", "server_port": 443 }
  ],
  "route": {
    "rules": [
      { "inbound": "test-in", "outbound": "hk // 1" },
      { "inbound": ["socks-in", "mixed-in"], "outbound": "Proxy" },
      { "protocol": "dns", "action": "hijack-dns" },
    ],
    "final": "Proxy"
  },
  "experimental": {
    "cache_file": { "enabled": true },
    "clash_api": { "external_controller": "0.0.0.0:9090", "external_ui": "ui", "secret": "hush hush" }
  }
}
"#;

#[test]
fn sing_boxs_file_tells_how_the_core_is_reached_and_used() {
    let described = sing_box_of(&[("/etc/sing-box/config.json", SING_BOX)]).unwrap();
    let outline = &described.outline;
    assert_eq!(control(outline), "http://127.0.0.1:9090");
    assert_eq!(outline.exposed.as_deref(), Some("0.0.0.0:9090"));
    assert_eq!(bearer(&described).as_deref(), Some("Bearer hush hush"));
    assert!(outline.has_secret && outline.keeps_choices);
    assert_eq!(
        proxies(outline),
        ["http://[::1]:2080", "http://127.0.0.1:2082", "socks5h://127.0.0.1:2333"]
    );
    assert_eq!(
        outline.other_proxies,
        [
            "lan-in does not listen on loopback",
            "test-in is led to hk // 1",
            "kept asks for a password",
            "tls is reached by TLS"
        ]
    );
    assert_eq!(outline.selectors["Proxy"], ["auto", "hk // 1", "direct"]);
    assert_eq!(outline.automatic.iter().collect::<Vec<_>>(), ["auto"]);
    assert_eq!(outline.default_way.as_deref(), Some("Proxy"));
    assert!(!format!("{described:?}").contains("hush"));
}

#[test]
fn several_files_are_one_configuration_as_sing_box_takes_them() {
    let described = sing_box_of(&[
        (
            "b.json",
            r#"{"experimental": {"clash_api": {"secret": "later", "external_controller": "[::1]:9091"}},
            "outbounds": [{"type": "urltest", "tag": "auto", "outbounds": "x"}]}"#,
        ),
        (
            "a.json",
            r#"{"experimental": {"clash_api": {"secret": "earlier"}},
            "outbounds": [{"type": "selector", "tag": "s", "outbounds": ["auto"]}]}"#,
        ),
        ("c.json", "{}"),
    ])
    .unwrap();
    let outline = &described.outline;
    assert_eq!(bearer(&described).as_deref(), Some("Bearer earlier"));
    assert_eq!(control(outline), "http://[::1]:9091");
    assert_eq!(outline.default_way.as_deref(), Some("s"), "the first outbound of the first file");
    assert!(outline.automatic.contains("auto") && outline.selectors.contains_key("s"));
    assert!(!outline.keeps_choices);
    let bare = sing_box_of(&[("a.json", "{}")]).unwrap();
    assert_eq!((bare.secret, bare.outline.proxies.len()), (None, 0));
    assert!(bare.outline.control.unwrap_err().contains("is not set"));
}

/// As subscriptions and their converters make it.
const MIHOMO: &str = "\u{feff}mixed-port: 7890\r\nsocks-port: 7891\nallow-lan: true
bind-address: '*'
mode: rule
external-controller: 127.0.0.1:9090
external-controller-unix: mihomo.sock
secret: 0815 # a number, as people write it
profile: {store-selected: false, store-fake-ip: true}
pr: &pr {type: select, proxies: [\"♻️ auto\", \"🇭🇰 HK/1\", DIRECT]}
use: &use
  type: url-test
  use: [sub]
proxy-providers:
  sub: {type: http, url: 'https://192.0.2.1/s?token=hush', path: ./sub.yaml, health-check: {enable: true}}
proxies:
  - {name: \"🇭🇰 HK/1\", type: ss, server: 192.0.2.1, port: 443, cipher: aes-128-gcm, password: 'hush', udp: yes}
proxy-groups:
  - {name: \"🚀 select\", <<: *pr}
  - name: \"♻️ auto\"
    <<: *use
    url: https://www.gstatic.com/generate_204
    interval: 300
  - {name: 1, type: fallback, proxies: [DIRECT]}
  - {name: video, <<: *pr}
rules:
  - DOMAIN-SUFFIX,example.org,video
  - MATCH,🚀 select,no-resolve
";

#[test]
fn mihomos_file_tells_how_the_core_is_reached_and_used() {
    let described = mihomo_of(MIHOMO).unwrap();
    let outline = &described.outline;
    assert_eq!(
        (control(outline).as_str(), outline.program),
        ("http://127.0.0.1:9090", Program::Mihomo)
    );
    assert_eq!(bearer(&described).as_deref(), Some("Bearer 0815"));
    assert!(!outline.keeps_choices && outline.exposed.is_none());
    assert_eq!(proxies(outline), ["http://127.0.0.1:7890", "socks5h://127.0.0.1:7891"]);
    assert_eq!(outline.selectors["🚀 select"], ["♻️ auto", "🇭🇰 HK/1", "DIRECT"]);
    assert_eq!(outline.automatic.iter().collect::<Vec<_>>(), ["1", "♻️ auto"]);
    assert_eq!(outline.default_way.as_deref(), Some("🚀 select"));
}

#[test]
fn where_mihomo_listens_follows_from_its_keys_together() {
    let of = |text: &str| mihomo_of(text).unwrap().outline;
    for (text, expected) in [
        ("port: 7890", vec!["http://127.0.0.1:7890"]),
        ("port: 7890\nbind-address: 192.168.1.1", vec!["http://127.0.0.1:7890"]),
        ("port: 7890\nallow-lan: true\nbind-address: 192.168.1.1", vec![]),
        ("port: 7890\nallow-lan: true\nbind-address: '[::1]'", vec!["http://[::1]:7890"]),
        ("port: 7890\nauthentication: ['u:p']", vec![]),
        (
            "port: 7890\nauthentication: ['u:p']\nskip-auth-prefixes: [127.0.0.1/8]",
            vec!["http://127.0.0.1:7890"],
        ),
        ("port: 0\nmixed-port: 70000", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(proxies(&of(text)), expected, "{text}");
    }
    for (text, expected) in [
        ("external-controller-unix: run/m.sock", "/etc/mihomo/run/m.sock"),
        ("external-controller-unix: /run/m.sock\nexternal-controller: ''", "/run/m.sock"),
        (
            "external-controller-unix: /run/m.sock\nexternal-controller: 192.168.1.1:9090",
            "/run/m.sock",
        ),
        ("external-controller: :9090", "http://127.0.0.1:9090"),
    ] {
        assert_eq!(control(&of(text)), expected, "{text}");
    }
    let elsewhere = control(&of("external-controller: 192.168.1.1:9090"));
    assert!(elsewhere.contains("over loopback alone"), "{elsewhere}");
    let arguments = ["-ext-ctl=127.0.0.1:1", "--secret", "said", "-ext-ctl-unix", "/run/x"];
    let over = running::overrides(&arguments.map(str::to_owned)).unwrap();
    let text = ("config.yaml", "external-controller: 127.0.0.1:2\nsecret: written");
    let described = mihomo(String::new(), text, Path::new("/"), &over).unwrap();
    assert_eq!(control(&described.outline), "http://127.0.0.1:1");
    assert_eq!(bearer(&described).as_deref(), Some("Bearer said"));
}

#[test]
fn a_file_that_is_not_understood_is_told_by_its_place_and_without_its_text() {
    for text in ["{\"secret\": \"hush\n", "{\"secret\": hush}", "[\"hush\"", "\"hush"] {
        let why = sing_box_of(&[("/etc/c.json", text)]).unwrap_err();
        assert!(why.starts_with("/etc/c.json is not JSON in line "), "{why}");
        assert!(!why.contains("hush"), "{why}");
    }
    for text in [
        "secret: 'hush",
        "secret: *hush",
        "secret: hush\nsecret: hush",
        "- hush",
        "secret: [hush]",
        "secret: {a: hush}",
    ] {
        let why = mihomo_of(text).unwrap_err();
        assert!(why.starts_with("config.yaml is not understood in line "), "{why}");
        assert!(!why.contains("hush"), "{why}");
    }
    let why = mihomo_of("secret: \"hush\\nhush\"").unwrap_err();
    assert!(why.contains("no request can carry") && !why.contains("hush"), "{why}");
    let why = running::overrides(&["-secret".to_owned(), "hush\u{7f}".to_owned()]).unwrap_err();
    assert!(!why.contains("hush"), "{why}");
}

fn process(pid: u32, words: &str) -> Running {
    Running { pid, words: words.split(' ').map(str::to_owned).collect() }
}

#[test]
fn a_core_is_known_by_its_name_and_by_what_it_was_told_to_do() {
    let program = |words: &str, wanted: Option<&str>| process(1, words).program(wanted);
    for (words, expected) in [
        ("/usr/bin/sing-box run -c /etc/a.json", Some(Program::SingBox)),
        ("sing-box -D /var/lib/sing-box -C /etc/sing-box run", Some(Program::SingBox)),
        ("sing-box version", None),
        ("sing-box check -c a.json", None),
        ("/opt/verge-mihomo -d /home/u/.local/share/verge", Some(Program::Mihomo)),
        ("clash", Some(Program::Mihomo)),
        ("mihomo-linux-amd64-v1.19.12 -f a.yaml", Some(Program::Mihomo)),
        ("mihomo -t -f a.yaml", None),
        ("mihomo -v", None),
        ("clash-verge-service", None),
        ("sh -c sing-box run", None),
        ("egressctl step sing-box", None),
    ] {
        assert_eq!(program(words, None), expected, "{words}");
    }
    assert_eq!(program("/opt/core run", Some("core")), Some(Program::SingBox));
    assert_eq!(program("/opt/core -d x", Some("core")), Some(Program::Mihomo));
    assert_eq!(program("sing-box run", Some("mihomo")), None);
}

#[test]
fn of_several_cores_none_is_taken_and_all_are_told() {
    let other = process(3, "sleep 9");
    let (sing_box, mihomo) =
        (process(7, "sing-box run -c a.json"), process(8, "/usr/bin/mihomo -d b -secret hush"));
    let pid = |all: &[Running], wanted| running::one(all, wanted).map(|(process, _)| process.pid);
    let all = [other.clone(), sing_box, mihomo];
    assert_eq!(pid(&all[..2], None), Ok(7));
    assert_eq!(pid(&all, Some("mihomo")), Ok(8));
    let several = "several cores run (sing-box as process 7, mihomo as process 8): name \
                   driver.clash.config or driver.clash.process in the policy";
    assert_eq!(pid(&all, None), Err(CoreFault::Strange(several.to_owned())));
    let none = CoreFault::Down("no process of sing-box or mihomo runs".to_owned());
    assert_eq!(pid(&[other], None), Err(none));
    let none = CoreFault::Down("no process verge-mihomo runs".to_owned());
    assert_eq!(pid(&all, Some("verge-mihomo")), Err(none));
}
