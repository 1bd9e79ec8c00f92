//! A gateway in the afternoon of a bad day, as its page shows it: a policy of each kind.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    reason = "test code, and not every test uses all of it"
)]

use egressctl::day::Day;
use egressctl::machine::ReasonText;
use egressctl::names::PolicyName;
use egressctl::outcome::{Ending, Report};
use egressctl::page::{Group, Health, Panel, Row, Shown};
use egressctl::status::{Head, Next, Standing};
use egressctl::time::Moment;
use jiff::{SignedDuration, Timestamp};

/// When the page is made.
pub fn now() -> Timestamp {
    "2026-11-30T16:42:10Z".parse().unwrap()
}

fn at(clock: &str) -> Timestamp {
    format!("2026-11-30T{clock}:00Z").parse().unwrap()
}

fn name(text: &str) -> PolicyName {
    PolicyName::try_from(text.to_owned()).unwrap()
}

/// A row that is called as its part.
pub fn row(name: &str, note: &str, health: Health, why: &str, facts: &[&str]) -> Row {
    Row {
        part: format!("{name} {note}"),
        health,
        seen: Some(Timestamp::MAX),
        name: name.to_owned(),
        note: note.to_owned(),
        in_use: false,
        why: why.to_owned(),
        facts: facts.iter().map(|fact| (*fact).to_owned()).collect(),
    }
}

fn used(row: Row) -> Row {
    Row { in_use: true, ..row }
}

/// The day of some rows: `troubles` are the row, hours before now from and to, and how it was then.
fn day(groups: &[Group], troubles: &[(usize, f64, f64, Health)]) -> Day {
    let mut day = Day::default();
    let rows: Vec<&Row> = groups.iter().flat_map(|group| &group.rows).collect();
    // A check each five minutes will do.
    for n in (0..=12 * 24_i32).rev() {
        let ago = f64::from(n) / 12.0;
        let seen = rows.iter().enumerate().map(|(place, row)| {
            let usual = if row.health == Health::Idle { Health::Idle } else { Health::Good };
            let trouble = troubles
                .iter()
                .rev()
                .find(|(whose, from, to, _)| *whose == place && ago <= *from && ago >= *to);
            Row { health: trouble.map_or(usual, |(.., health)| *health), ..(*row).clone() }
        });
        let seen: Vec<Row> = seen.collect();
        day.count(now() - SignedDuration::from_mins(5 * i64::from(n)), &seen);
    }
    day
}

fn transition(policy: &str, clock: &str, from: &str, to: &str, text: &str) -> Report {
    let mut report = Report::new(&name(policy), "", &Moment::epoch());
    (report.at, report.from, report.to) = (at(clock), Some(from.to_owned()), Some(to.to_owned()));
    report.reasons = vec![ReasonText::new("x", text)];
    report.ended(Ending::Applied, egressctl::outcome::Exit::Fine)
}

fn head(policy: &str, kind: &str, state: &str, since: &str, reason: &str) -> Head {
    Head {
        policy: name(policy),
        kind: kind.to_owned(),
        state: Some(state.to_owned()),
        since: Some(at(since)),
        paused: None,
        reasons: vec![ReasonText::new("x", reason)],
        last_step: None,
    }
}

/// All panels.
pub fn panels() -> Vec<Panel> {
    vec![home(), uplink(), proxies(), names(), abroad()]
}

fn home() -> Panel {
    let slots = vec![
        row("vpn1", "nl-ams-3", Health::Good, "", &["8 clients", "24 ms", "198.51.100.17"]),
        row("vpn2", "de-fra-1", Health::Good, "", &["7 clients", "19 ms", "198.51.100.42"]),
        row("vpn3", "se-sto-2", Health::Bad, "silent for 2 checks", &[]),
        row("vpn4", "ch-zrh-5", Health::Good, "", &["8 clients", "31 ms", "203.0.113.9"]),
        row("vpn5", "fi-hel-1", Health::Good, "", &["7 clients", "42 ms", "203.0.113.77"]),
    ];
    let groups = vec![Group { title: "Slots", rows: slots }];
    Panel {
        head: head(
            "home",
            "pool",
            "LOCAL_REPAIR",
            "16:41",
            "vpn3 silent for 2 checks; 6 clients moved to vpn1 vpn2 vpn4 vpn5",
        ),
        standing: Standing::Degraded,
        day: day(
            &groups,
            &[
                (2, 0.1, 0.0, Health::Bad),
                (2, 9.4, 8.9, Health::Bad),
                (0, 15.0, 14.5, Health::Bad),
                (3, 9.2, 9.1, Health::Bad),
                (4, 20.0, 19.0, Health::Unknown),
            ],
        ),
        shown: Shown {
            groups,
            badges: Vec::new(),
            facts: [
                "30 clients",
                "list 3",
                "7 in reserve",
                "2 quarantined",
                "2 repaired since the last full refresh",
            ]
            .map(str::to_owned)
            .into(),
            next: vec![Next { what: "check".to_owned(), at: at("16:43") }],
        },
        history: vec![
            transition(
                "home",
                "16:41",
                "NORMAL",
                "LOCAL_REPAIR",
                "vpn3 silent for 2 checks; 6 clients moved to vpn1 vpn2 vpn4 vpn5",
            ),
            transition(
                "home",
                "07:49",
                "LOCAL_REPAIR",
                "NORMAL",
                "se-sto-9 of vpn3 is quarantined: silent; vpn3 is now on se-sto-2",
            ),
            transition(
                "home",
                "07:18",
                "NORMAL",
                "LOCAL_REPAIR",
                "vpn3 silent for 2 checks; 6 clients moved",
            ),
        ],
    }
}

fn uplink() -> Panel {
    let channels = vec![
        row("eth0", "primary", Health::Good, "", &["11 ms"]),
        used(row("wwan0", "reserve", Health::Good, "", &["58 ms"])),
    ];
    let groups = vec![Group { title: "Channels", rows: channels }];
    Panel {
        head: head(
            "uplink",
            "selector",
            "PRIMARY_RECOVERING",
            "16:33",
            "the primary has answered for 540 s of 900 s",
        ),
        standing: Standing::Degraded,
        day: day(&groups, &[(0, 2.2, 0.15, Health::Bad)]),
        shown: Shown {
            groups,
            badges: vec!["temporarily through wwan0".to_owned()],
            facts: vec!["1 failover within the window".to_owned(), "212 KiB/s received".to_owned()],
            next: Vec::new(),
        },
        history: vec![
            transition(
                "uplink",
                "16:33",
                "ON_RESERVE",
                "PRIMARY_RECOVERING",
                "the primary answers again",
            ),
            transition(
                "uplink",
                "14:33",
                "PRIMARY_FAILING",
                "ON_RESERVE",
                "eth0 failed for 120 s; new connections take wwan0",
            ),
        ],
    }
}

fn proxies() -> Panel {
    let members = vec![
        used(row("auto", "the automatic group", Health::Good, "", &["87 ms"])),
        row("ams-1", "", Health::Good, "", &["64 ms by the core"]),
        row("fra-2", "", Health::Good, "", &["71 ms by the core"]),
    ];
    let groups = vec![Group { title: "Members", rows: members }];
    Panel {
        head: head(
            "proxies",
            "guard",
            "AUTO",
            "03:10",
            "the automatic group chooses and requests pass",
        ),
        standing: Standing::AsWished,
        day: day(&groups, &[(1, 13.6, 13.3, Health::Bad)]),
        shown: Shown { groups, facts: vec!["the group uses ams-1".to_owned()], ..Shown::default() },
        history: vec![transition(
            "proxies",
            "03:10",
            "OBSERVING",
            "AUTO",
            "the automatic group has its choice back",
        )],
    }
}

fn names() -> Panel {
    let hosts = vec![
        row(
            "fi.example.org",
            "\u{2192} FRA",
            Health::Good,
            "temporarily through FRA: fi is lost: silent",
            &["FALLBACK", "198.51.100.2"],
        ),
        row("us.example.org", "\u{2192} NYC", Health::Good, "", &["NATIVE", "198.51.100.3"]),
    ];
    let nodes = vec![
        row("HEL", "fi", Health::Bad, "silent", &["198.51.100.1"]),
        row("FRA", "de", Health::Good, "", &["21 ms", "198.51.100.2"]),
        row("NYC", "us", Health::Good, "", &["96 ms", "198.51.100.3"]),
    ];
    let groups = vec![Group { title: "Hosts", rows: hosts }, Group { title: "Nodes", rows: nodes }];
    Panel {
        head: head(
            "names",
            "dns",
            "FALLBACK",
            "15:58",
            "fi.example.org moved to de: fi is lost: silent",
        ),
        standing: Standing::Degraded,
        day: day(&groups, &[(2, 0.75, 0.0, Health::Bad), (4, 18.2, 18.1, Health::Bad)]),
        shown: Shown {
            groups,
            badges: vec!["fi.example.org temporarily through FRA".to_owned()],
            ..Shown::default()
        },
        history: vec![transition(
            "names",
            "15:58",
            "NATIVE_FAILING",
            "FALLBACK",
            "fi.example.org moved to de: fi is lost: silent",
        )],
    }
}

fn abroad() -> Panel {
    let path = vec![row("entry \u{2192} exit", "", Health::Good, "", &["133 ms"])];
    let hops = vec![
        used(row("a1", "entry", Health::Good, "", &["PREFERRED", "38 ms"])),
        row("a2", "entry", Health::Idle, "", &[]),
        used(row("b1", "exit", Health::Good, "", &["PREFERRED", "133 ms"])),
        row("b2", "exit", Health::Idle, "", &[]),
    ];
    let groups = vec![Group { title: "Path", rows: path }, Group { title: "Hops", rows: hops }];
    Panel {
        head: head(
            "abroad",
            "chain",
            "PREFERRED",
            "09:02",
            "every hop is on its preferred node, and the path passes",
        ),
        standing: Standing::AsWished,
        day: day(&groups, &[(0, 7.9, 7.7, Health::Bad), (3, 8.0, 7.7, Health::Bad)]),
        shown: Shown { groups, ..Shown::default() },
        history: vec![transition(
            "abroad",
            "09:02",
            "RETURNING",
            "PREFERRED",
            "exit is on b1 again",
        )],
    }
}
