//! The main job, shown in the lab: five tunnels come up, an endpoint dies, its clients go on by the
//! others, the slot is repaired, and the clients are home. Run it by `tests/lab/demo`.
//!
//! **Invariant:** what it says of clients is what the web saw of them; it ends with an error when that is not as it should be.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a demonstration prints, and ends at the first thing that is not as it should be"
)]

#[path = "mod.rs"]
mod lab;

use lab::{Lab, names};
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// More than slots, so that homes are shared.
const CLIENTS: usize = 7;
/// More than slots, so that there is reserve.
const ENDPOINTS: usize = 8;

fn main() {
    let begun = Instant::now();
    title("The lab: clients, a gateway, an internet, and a provider of WireGuard tunnels");
    let lab = Lab::builder().clients(CLIENTS).endpoints(ENDPOINTS).start();
    say(&format!(
        "{CLIENTS} clients  10.77.0.11 to 10.77.0.{}, behind the gateway's eth1",
        10 + CLIENTS
    ));
    say("1 gateway  203.0.113.2 on its WAN, eth0; egressctl runs here");
    say(&format!(
        "{ENDPOINTS} endpoints p1 to p{ENDPOINTS} of the provider, each a real WireGuard server;"
    ));
    say("           who leaves by pN is seen by the web as 198.51.100.(110+N)");
    let mut policy = lab.pool_policy();
    policy["params"]["local_repair_retest_count"] = 1.into();
    policy["exit_ip"] = serde_json::json!({ "url": format!("http://{}/ip", names::PROBE) });
    lab.gw().policy("home", &policy);
    title("Before: who leaves where");
    say("Nothing is done yet, so the clients leave by the WAN in clear:");
    table(&lab, None);

    title("The first step: test the provider's files, load five slots, place the clients");
    step(&lab, |to| to == "NORMAL");
    let home = table(&lab, None);
    assert!(home.iter().all(Option::is_some), "a client has no exit by an endpoint");
    let mark = lab.capture.mark();

    let victim = home[0].expect("client 1 leaves by an endpoint");
    title(&format!("Endpoint p{victim} dies: the internet drops its packets without a word"));
    lab.drop(victim);
    say("One failed check proves nothing, the second one does (health_failures_before_down: 2):");
    step(&lab, |to| to == "NORMAL");
    step(&lab, |to| to == "LOCAL_REPAIR");
    let away = table(&lab, Some(&home));
    assert!(away.iter().all(|exit| exit.is_some() && *exit != Some(victim)), "{away:?}");
    for (before, after) in home.iter().zip(&away) {
        assert!(*before == Some(victim) || before == after, "a client of a serving slot was moved");
    }

    title("The next step repairs the slot with another endpoint, and the clients go home");
    say("What it will do, asked beforehand without changing anything:");
    show(&lab, &["plan", "home"], &[0]);
    say("And done:");
    step(&lab, |to| to == "NORMAL");
    let back = table(&lab, Some(&away));
    assert!(back.iter().all(|exit| exit.is_some() && *exit != Some(victim)), "{back:?}");

    title("Nothing is left to do, and so nothing is done");
    step(&lab, |to| to == "NORMAL");
    show(&lab, &["status", "home"], &[0]);
    show(&lab, &["history", "home"], &[0]);

    let leaks = lab.capture.leaks_since(mark);
    title("What a packet capture on the WAN saw since the first step");
    say(&format!("packets of clients in clear: {}", leaks.len()));
    assert_eq!(leaks, [], "a client's packet left by the WAN in clear");

    title("Down: all that was made is removed");
    show(&lab, &["down", "home"], &[0]);
    table(&lab, None);
    say(&format!("devices:           {}", words(&lab.gw().ip("-br link show"), 0)));
    say(&format!("rule priorities:   {}", words(&lab.gw().ip("rule show"), 0)));
    let tables = lab.gw().nft("list tables");
    say(&format!("nft tables:        {}", if tables.is_empty() { "none" } else { tables.trim() }));
    say(&format!("WireGuard daemons: {}", lab.gw().daemons().len()));
    assert!(tables.is_empty() && lab.gw().daemons().is_empty());
    drop(lab);
    println!("\nDone in {:.1} s. The lab is removed.", begun.elapsed().as_secs_f32());
}

/// A line of its own for what follows.
fn title(text: &str) {
    let (bold, plain) =
        if std::io::stdout().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    println!("\n{bold}== {text}{plain}");
    let _flushed = std::io::stdout().flush();
}

fn say(text: &str) {
    println!("   {text}");
}

/// The words at one place of each line, ends of namespace links cut off.
fn words(text: &str, place: usize) -> String {
    let word = |line: &str| {
        let word = line.split_whitespace().nth(place)?.trim_end_matches(':');
        Some(word.split('@').next().unwrap_or(word).to_owned())
    };
    text.lines().filter_map(word).collect::<Vec<_>>().join(" ")
}

/// Runs egressctl, shows the command and what it says, and returns that.
fn show(lab: &Lab, args: &[&str], codes: &[i32]) -> String {
    println!("   $ egressctl {}", args.join(" "));
    let begun = Instant::now();
    let outcome = lab.gw().egressctl(args);
    for line in outcome.stdout.lines().chain(outcome.stderr.lines()) {
        println!("   {line}");
    }
    let code = outcome.code.expect("no signal ended it");
    println!("   (exit code {code}, {} ms)", begun.elapsed().as_millis());
    assert!(codes.contains(&code), "exit code {code}, not one of {codes:?}");
    outcome.stdout
}

/// Runs one step, which must leave the pool in a state.
fn step(lab: &Lab, is_right: impl Fn(&str) -> bool) {
    show(lab, &["step", "home"], &[0]);
    let status = lab.gw().egressctl(&["status", "home", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("status is JSON");
    let state = status["state"].as_str().unwrap_or_default();
    assert!(is_right(state), "the pool is in {state}");
}

/// Shows as whom the web sees each client, and marks who has moved.
fn table(lab: &Lab, before: Option<&[Option<usize>]>) -> Vec<Option<usize>> {
    let clients = lab.clients();
    let seen: Vec<Option<String>> = std::thread::scope(|scope| {
        let asked: Vec<_> = clients.iter().map(|client| scope.spawn(|| client.exit())).collect();
        asked.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
    });
    println!("   client       seen by the web as  that is");
    let mut exits = Vec::new();
    for (k, exit) in seen.iter().enumerate() {
        let endpoint = exit.as_deref().and_then(names::endpoint_of);
        let what = match (exit, endpoint) {
            (_, Some(n)) => format!("endpoint p{n}"),
            (Some(_), None) => "itself, in clear".to_owned(),
            (None, None) => "nobody: no answer".to_owned(),
        };
        let moved = before.is_some_and(|before| before[k] != endpoint);
        println!(
            "   {:<12} {:<19} {what}{}",
            names::client(k + 1).to_string(),
            exit.as_deref().unwrap_or("-"),
            if moved { "  <- moved" } else { "" }
        );
        exits.push(endpoint);
    }
    // The person who reads needs a moment, and the counters of the kernel settle.
    std::thread::sleep(Duration::from_millis(300));
    exits
}
