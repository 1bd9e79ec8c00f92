//! A provider's bad day, as a person sees it: whatever it says, the pool stays as it was and status says why.

use crate::lab;

use lab::pool::Pool;
use lab::source::{Says, by_http, endpoints, good, text};
use lab::{Lab, names, provider};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// How many endpoints the good list has.
const ALL: usize = 6;

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

fn answer(status: &str, head: &str, body: &str) -> Says {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    Says::Raw(text.into_bytes())
}

/// The whole list, each entry changed.
fn changed(change: impl Fn(usize, &mut Value)) -> Says {
    let mut list: Vec<Value> = serde_json::from_str(&text(&endpoints(1, ALL))).unwrap();
    for (entry, k) in list.iter_mut().zip(1..) {
        change(k, entry);
    }
    Says::Text(Value::from(list).to_string())
}

/// The whole list with other configurations.
fn configs(config: impl Fn(&str) -> String) -> Says {
    changed(|_, entry| entry["config"] = json!(config(entry["config"].as_str().unwrap())))
}

fn zip(name: &str, bytes: &[u8]) -> Says {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file(name, SimpleFileOptions::default()).unwrap();
    zip.write_all(bytes).unwrap();
    Says::Raw(good("application/zip", &zip.finish().unwrap().into_inner()))
}

/// Each bad day with what a person is told of it.
fn bad_days() -> Vec<(&'static str, Says, &'static str)> {
    let whole = text(&endpoints(1, ALL));
    let cut = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", &whole[..whole.len() / 2]);
    let elsewhere = format!("Location: http://{}/list\r\n", names::WAN_PROBE);
    let with_endpoint = |endpoint: &'static str| {
        configs(move |config| {
            let (before, after) = config.split_once("Endpoint = ").unwrap();
            format!("{before}Endpoint = {endpoint}\n{}", after.split_once('\n').unwrap().1)
        })
    };
    vec![
        ("nothing", Says::Text(String::new()), "the answer is empty"),
        ("an empty list", Says::Text("[]".to_owned()), "the list is empty"),
        ("a page", Says::Text("<html>please sign in</html>".to_owned()), "a page and no list"),
        ("a promise half kept", Says::Breaks(endpoints(1, ALL)), "protocol"),
        ("half a text", Says::Raw(cut.into_bytes()), "the list is cut off"),
        ("a byte now and then", Says::Drips, "timed out"),
        ("a refusal", Says::Refuses(50_000), "answers 429"),
        ("a fault of its own", answer("500 Oops", "", "<html>"), "answers 500"),
        ("another place", answer("302 Found", &elsewhere, ""), "redirects to 192.0.2.11"),
        ("too few", Says::Lists(endpoints(5, 6)), "2 usable entries and the last good one had 6"),
        (
            "one six times",
            changed(|k, entry| {
                *entry = json!({ "name": format!("x{k}"), "config": provider::config(1) });
            }),
            "1 usable entries and the last good one had 6",
        ),
        (
            "hostile names of nothing",
            changed(|_, entry| {
                *entry = json!({ "name": "\u{1b}[2J\n../../../../tmp/x\u{202e}", "config": "no" });
            }),
            "no entry is usable; _[2J_../../../../tmp/x_: ",
        ),
        ("wrong keys", configs(|text| text.replace("PublicKey = ", "PublicKey = x")), "PublicKey"),
        ("no port", with_endpoint("198.51.100.11:0"), "port"),
        ("this machine", with_endpoint("127.0.0.1:51820"), "refused unless allow_loopback"),
        ("a bomb", zip("bomb.conf", &vec![b'#'; 20_000_000]), "longer than 65536 bytes"),
        ("a climbing path", zip("../../../climb.conf", b"[Interface]\n"), "climb: "),
        ("half a zip", Says::Raw(good("application/zip", b"PK\x03\x04junk")), "cut off or spoilt"),
    ]
}

/// Case C48.
#[test]
fn after_each_bad_day_the_pool_is_as_it_was_and_status_says_why() {
    let lab = Lab::builder().clients(2).endpoints(ALL).start();
    let pool = Pool::up(&lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["provider"] = by_http();
        policy["params"]["hmn_refresh_retry_interval_sec"] = json!(600);
    });
    let list = lab.gw().state_dir().join("home/pool");
    let (homes, kept) = (pool.serves(2), files(&list));
    assert_eq!(kept.len(), ALL);
    let refresh = |from: &str, to: &str| {
        assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
        pool.goes(from, "FULL_POOL_REFRESH");
        pool.goes("FULL_POOL_REFRESH", to);
    };
    let mut from = "NORMAL";
    for (day, says, why) in bad_days() {
        let tunnels = pool.tunnels();
        lab.source.says(says);
        refresh(from, "DEGRADED_POOL");
        from = "DEGRADED_POOL";
        // The reason is still told by every step until the next refresh.
        let later = pool.step();
        assert!(later.is_steady(), "{day}: {later:#?}");
        let status = lab.gw().egressctl(&["status", "home"]);
        assert_eq!(status.code, Some(1), "{day}: {}", status.stdout);
        assert!(status.stdout.contains("the last came to nothing: "), "{day}: {}", status.stdout);
        assert!(status.stdout.contains(why), "{day}: {}", status.stdout);
        let moves = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!status.stdout.contains(moves), "{day}: {:?}", status.stdout);
        assert!(status.stdout.contains("list 1 of "), "{day}: {}", status.stdout);
        assert!(status.stdout.contains(" 4 in reserve, 0 quarantined"), "{day}: {}", status.stdout);
        pool.others_go_on(&tunnels, &[]);
        assert_eq!(pool.serves(2), homes, "{day}");
        assert_eq!(files(&list), kept, "{day}");
        let told = files(lab.folder()).into_keys();
        assert!(told.filter(|path| path.ends_with("climb.conf")).count() == 0, "{day}");
        if day == "a refusal" {
            let next = pool.status()["next"].clone();
            let at = next.as_array().unwrap().iter().find(|next| next["what"] == "refresh");
            let at: jiff::Timestamp = at.unwrap()["at"].as_str().unwrap().parse().unwrap();
            let wait = at.duration_since(jiff::Timestamp::now()).as_secs();
            assert!((49_000..=50_000).contains(&wait), "as long as it wished: {wait}");
        }
    }

    // The same endpoints under hostile names are the same endpoints.
    let tunnels = pool.tunnels();
    let names = ["../../../climb.conf", "a\n\u{1b}[2Jb", "", ".", "same", "SAME"];
    lab.source.says(changed(|k, entry| entry["name"] = json!(names[k - 1])));
    refresh(from, "NORMAL");
    pool.others_go_on(&tunnels, &[]);
    assert_eq!(pool.serves(2), homes);
    let status = lab.gw().egressctl(&["status", "home"]);
    assert_eq!(status.code, Some(0), "{}", status.stdout);
    assert!(!status.stdout.contains(|c: char| c.is_control() && c != '\n'), "{:?}", status.stdout);
    assert!(!status.stdout.contains("came to nothing"), "{}", status.stdout);
    let second = list.join("2");
    assert_eq!(files(&second).len(), ALL, "all of them, there and nowhere else");
    for path in files(&second).into_keys() {
        let file = path.strip_prefix(&second).unwrap().to_str().unwrap().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(file.chars().all(plain) && !file.starts_with('.'), "{file}");
    }
    pool.nothing_leaked();
}
