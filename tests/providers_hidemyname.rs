//! HideMyName as clients describe it, and on its bad days. Codes, servers and keys are made up.

use crate::provider_server;

use egressctl::host::provider::list;
use egressctl::observation::ListReading;
use provider_server::{Asked, Bench, Reply, Server, conf, listed, names, ok, status, unavailable};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CODE: &str = "12345678901234";

fn server(n: u32) -> Value {
    json!({
        "id": n, "country_code": "NL", "name": "Нидерланды, Амстердам",
        "name_en": format!("Netherlands, Amsterdam S{n}"),
        "services": { "wg": { "ip": format!("192.0.2.{n}"), "port": 45497 }, "ovpn": {} },
    })
}

/// Numbers 1 to 3, in the shape that is seen most.
fn by_number() -> Value {
    json!({
        "10": { "id": 10, "name": "no WireGuard", "services": {} },
        "3": server(3), "1": server(1), "2": server(2),
        "4": "nonsense", "5": { "id": 5, "services": { "wg": { "ip": "../x", "port": 1 } } },
    })
}

/// A configuration for the server that a form asks for, at another port than the list says.
fn config(asked: &Asked) -> Reply {
    let form = &asked.body;
    assert!(
        form.starts_with(&format!("code={CODE}&server=")) && form.ends_with("&awg=0"),
        "{form}"
    );
    let ip = form.split('&').nth(1).unwrap().strip_prefix("server=").unwrap();
    let n: u32 = ip.rsplit('.').next().unwrap().parse().unwrap();
    ok(conf(u8::try_from(n).unwrap(), 100 + n, &format!("{ip}:4430{n}")))
}

fn site(list: Value, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
    Server::new(move |asked| {
        assert_eq!(asked.verb, "POST");
        assert_eq!(asked.headers["content-type"], "application/x-www-form-urlencoded");
        let here = format!("http://{}", asked.headers["host"]);
        assert_eq!(asked.headers["origin"], here);
        assert_eq!(asked.headers["referer"], format!("{here}/vpn/router/"));
        match asked.path.as_str() {
            "/api/serverlist.php?out=js&wg" => {
                assert_eq!(asked.body, format!("code={CODE}"));
                ok(list.to_string())
            }
            "/api/vpn_get_config_wg.php" => answer(asked),
            other => panic!("{other}"),
        }
    })
}

fn provider(bench: &Bench, servers: &[&Server]) -> Value {
    let urls: Vec<String> = servers.iter().map(|server| server.url("/")).collect();
    json!({ "hidemyname": {
        "urls": urls, "code_file": bench.put("code", format!("{CODE}\n")),
        "pause_ms": 10, "timeout_sec": 5,
    }})
}

fn configs(server: &Server) -> usize {
    server.asked().iter().filter(|asked| asked.path.contains("get_config")).count()
}

#[test]
fn each_server_is_asked_for_once_and_then_kept() {
    let bench = Bench::new();
    let shapes = [
        by_number(),
        json!([server(2), server(1), 7, server(3), server(2)]),
        json!({ "data": [server(1), server(2), server(3)] }),
    ];
    for shape in shapes {
        let site = site(shape, config);
        let mut question = Bench::question(&provider(&bench, &[&site]), &json!({}));
        let (candidates, rejected, _) = listed(list(&question, &bench.state(), true));
        let wished =
            ["Netherlands, Amsterdam S1", "Netherlands, Amsterdam S2", "Netherlands, Amsterdam S3"];
        assert_eq!((names(&candidates), rejected), (wished.into(), vec![]));
        assert_eq!(candidates[1].origin.as_deref(), Some("2 192.0.2.2 45497 awg0"));
        assert_eq!((candidates[1].host.as_str(), candidates[1].port), ("192.0.2.2", 44302));
        assert_eq!(candidates[1].country.as_deref(), Some("Netherlands"));
        let keys: BTreeSet<String> = candidates.iter().map(|c| c.ends.own.to_string()).collect();
        assert_eq!(keys.len(), 3, "each has its own key");
        assert_eq!(configs(&site), 3);
        question.have = candidates.clone().into();
        question.generation = 4;
        let (again, ..) = listed(list(&question, &bench.state(), true));
        assert_eq!(configs(&site), 3, "nothing changed");
        assert_eq!(again[0].ends, candidates[0].ends);
        assert_eq!(again[0].config.generation, 4);
        assert!(bench.state().join(again[0].config.path()).exists());
        // One was left out for failing, and the file of another is gone.
        question.have = again[..2].to_vec().into();
        std::fs::remove_file(bench.state().join(again[0].config.path())).unwrap();
        question.generation = 5;
        let (all, ..) = listed(list(&question, &bench.state(), true));
        assert_eq!((all.len(), configs(&site)), (3, 5));
        // Another file lies where the first one was.
        question.have = all.into();
        let path = |at: usize| bench.state().join(question.have[at].config.path());
        std::fs::copy(path(1), path(0)).unwrap();
        question.generation = 6;
        assert_eq!(listed(list(&question, &bench.state(), true)).0.len(), 3);
        assert_eq!(configs(&site), 6);
    }
}

#[test]
fn a_refresh_asks_for_a_batch_and_the_next_goes_on() {
    let bench = Bench::new();
    let site = site(json!((1..=9).map(server).collect::<Vec<_>>()), config);
    let mut asking = provider(&bench, &[&site]);
    asking["hidemyname"]["batch"] = json!(4);
    asking["hidemyname"]["pause_ms"] = json!(100);
    let mut question = Bench::question(&asking, &json!({}));
    let begun = Instant::now();
    let (candidates, rejected, _) = listed(list(&question, &bench.state(), true));
    assert!(begun.elapsed() >= Duration::from_millis(400), "requests are paced");
    assert_eq!((candidates.len(), configs(&site)), (4, 4));
    assert_eq!(rejected[0].name, "(5 more)");
    assert_eq!(rejected[0].why, "are asked for in the next refresh");
    question.have = candidates.into();
    question.wanted.country = vec!["NL".to_owned()];
    let (candidates, rejected, _) = listed(list(&question, &bench.state(), true));
    assert_eq!((candidates.len(), configs(&site)), (8, 8));
    assert_eq!(rejected[0].name, "(1 more)");
    question.have = candidates.into();
    let (candidates, rejected, _) = listed(list(&question, &bench.state(), true));
    assert_eq!((candidates.len(), configs(&site), rejected.len()), (9, 9, 0));
    // Only what is wanted is asked for.
    let question = Bench::question(&asking, &json!({ "country": ["nl"], "name": ["*S7"] }));
    assert_eq!(listed(list(&question, &bench.state(), true)).0.len(), 1);
    assert_eq!(configs(&site), 10);
    let (why, ..) = unavailable(bench.ask_for(&asking, &json!({ "country": ["FR"] })));
    assert!(why.starts_with("none of its 9 servers is wanted"), "{why}");
}

#[test]
fn time_that_runs_out_leaves_what_was_got() {
    let bench = Bench::new();
    let site = site(json!((1..=9).map(server).collect::<Vec<_>>()), config);
    let mut asking = provider(&bench, &[&site]);
    asking["hidemyname"]["timeout_sec"] = json!(1);
    asking["hidemyname"]["pause_ms"] = json!(300);
    let begun = Instant::now();
    let (candidates, rejected, _) = listed(bench.ask(&asking));
    assert!((1..=3).contains(&candidates.len()), "{}", candidates.len());
    assert_eq!(rejected, [], "no server is blamed for it");
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn servers_that_give_nothing_do_not_keep_the_others_waiting() {
    let bench = Bench::new();
    let nine = || json!((1..=9).map(server).collect::<Vec<_>>());
    // A site that fails three times in a row is left alone; what was wrong first is told.
    let count = AtomicUsize::new(0);
    let broken = site(nine(), move |_| {
        ok(if count.fetch_add(1, Ordering::Relaxed) == 0 { "<html>" } else { "no" })
    });
    let (why, ..) = unavailable(bench.ask(&provider(&bench, &[&broken])));
    assert!(why.contains("it gives a page"), "{why}");
    assert_eq!(configs(&broken), 3);
    // The next refresh begins elsewhere.
    let silent = site(nine(), |_| ok("no"));
    let mut asking = provider(&bench, &[&silent]);
    asking["hidemyname"]["batch"] = json!(1);
    let begun = Instant::now();
    let first = || silent.asked().into_iter().filter(|asked| asked.path.contains("get_config"));
    while first().map(|asked| asked.body).collect::<BTreeSet<_>>().len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(5), "always the same");
        let _none = unavailable(bench.ask(&asking));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_answer_counts_by_what_it_holds() {
    let bench = Bench::new();
    let site_saying = |text: &'static str| site(by_number(), move |_| ok(text));
    for (text, part) in [
        ("", "it gives a text and no configuration"),
        ("Error: code 12345678901234 expired", "it gives a text and no configuration"),
        ("<html>[Interface]", "it gives a page and no configuration"),
        ("[Interface]\nPrivateKey = x\n", "it gives a text and no configuration"),
    ] {
        let site = site_saying(text);
        let (why, answered, _) = unavailable(bench.ask(&provider(&bench, &[&site])));
        assert!(why.contains(part) && answered && !why.contains(CODE), "{part}: {why}");
        assert_eq!(configs(&site), 3);
    }
    // A good beginning does not make a good configuration, and one bad server is only itself.
    let site = site(by_number(), |asked| {
        if asked.body.contains("192.0.2.2&") { ok("[Interface]\n[Peer]\n") } else { config(asked) }
    });
    let (candidates, rejected, _) = listed(bench.ask(&provider(&bench, &[&site])));
    assert_eq!((candidates.len(), rejected.len()), (2, 1));
    for list in ["", "[]", "{}", "<html>", "wrong code", r#"{"error":"code"}"#, r#"{"data":[]}"#] {
        let site = Server::saying(list);
        let (why, ..) = unavailable(bench.ask(&provider(&bench, &[&site])));
        assert!(why.starts_with("127.0.0.1: "), "{why}");
        assert_eq!(site.asked().len(), 1);
    }
}

#[test]
fn sites_are_tried_in_order_and_a_refusal_ends_it() {
    let bench = Bench::new();
    let (blocked, good) = (Server::saying("<html>blocked"), site(by_number(), config));
    let (candidates, ..) = listed(bench.ask(&provider(&bench, &[&blocked, &good])));
    assert_eq!((candidates.len(), configs(&good)), (3, 3));
    // A code is not sent on to where a page leads.
    let moved = Server::new(|_| status(302, "Location: /elsewhere\r\n"));
    let (why, ..) = unavailable(bench.ask(&provider(&bench, &[&moved])));
    assert!(why.contains("answers 302") && moved.asked().len() == 1, "{why}");
    let busy = Server::new(|_| status(429, "Retry-After: 60\r\n"));
    let reading = bench.ask(&provider(&bench, &[&busy, &good]));
    let (why, answered, wait) = unavailable(reading);
    assert!(why.contains("answers 429") && answered, "{why}");
    assert_eq!((wait, configs(&good)), (Some(60), 3));
    let later = site(by_number(), |_| status(429, "Retry-After: 60\r\n"));
    let (_, _, wait) = unavailable(bench.ask(&provider(&bench, &[&later])));
    assert_eq!((wait, configs(&later)), (Some(60), 1), "one refusal is enough");
}

#[test]
fn a_plan_asks_for_little_and_keeps_nothing() {
    let bench = Bench::new();
    let site = site(json!((1..=9).map(server).collect::<Vec<_>>()), config);
    let question = Bench::question(&provider(&bench, &[&site]), &json!({}));
    let ListReading::Listed { candidates, .. } = list(&question, &bench.state(), false) else {
        panic!("no list");
    };
    assert_eq!((candidates.len(), configs(&site)), (5, 5));
    assert!(!bench.path("pool").exists());
}
