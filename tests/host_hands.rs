//! The laws of looking and changing, on the real kernel.

use crate::host_hands_space;

use egressctl::host::apply::{Hands, apply, route_get};
use egressctl::host::cut::{CutResult, cut};
use egressctl::host::look;
use egressctl::iproute::{Family, Route, RouteKind, Rule, RuleAction};
use egressctl::kernel::diff::{Means, diff};
use egressctl::kernel::read::sha256;
use egressctl::kernel::{ConfigRef, NftTable, World};
use egressctl::machine::Cut;
use egressctl::names::{Interface, Mark, Table};
use egressctl::observation::{KernelReading, KernelScope, Keys, Realm};
use egressctl::plan::{Action, Backend, RouteQuery, Step};
use host_hands_space::{Space, interface, may, name, shell, tunnel};
use std::collections::BTreeSet;
use std::time::Instant;

const TABLE: &str = "egressctl_lawtest";

fn means() -> Means {
    Means { backend: Backend::Userspace("wireguard-go".to_owned()), tool: "wg".to_owned() }
}

fn route(table: u32, dev: Option<&Interface>) -> Route {
    Route {
        family: Family::V4,
        kind: if dev.is_some() { RouteKind::Unicast } else { RouteKind::Unreachable },
        destination: "0.0.0.0/0".parse().unwrap(),
        via: None,
        dev: dev.map(ToString::to_string),
        table: Table(table),
        metric: dev.is_none().then_some(4_278_198_272),
        protocol: Some(201),
        other: false,
    }
}

fn rule(priority: u32, family: Family, action: RuleAction) -> Rule {
    Rule {
        priority,
        family,
        from: None,
        to: None,
        not: false,
        fwmark: None,
        iif: None,
        oif: None,
        uid_range: None,
        action,
        suppress_prefixlength: None,
        protocol: Some(201),
        other: false,
    }
}

/// A policy's folder, its two tunnels and the world that is wished.
struct Bench {
    folder: tempfile::TempDir,
    slots: [Interface; 2],
    wished: World,
    hands: Hands,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let slots = [interface(&name("a")), interface(&name("b"))];
        let mut wished = World::default();
        for (index, slot) in (1..).zip(&slots) {
            let file = format!("{index}.conf");
            let endpoint = format!("192.0.2.{index}:51820").parse().unwrap();
            let tunnel = tunnel(folder.path(), &file, index, index + 10, endpoint);
            wished.tunnels.insert(slot.clone(), tunnel);
            for (key, value) in [("rp_filter", "2"), ("src_valid_mark", "1")] {
                wished.sysctls.insert(format!("net/ipv4/conf/{slot}/{key}"), value.to_owned());
            }
            let table = 100 + index;
            wished.routes.extend([route(table, Some(slot)), route(table, None)]);
            wished.rules.insert(Rule {
                fwmark: Some((0x4547_0000 + index, u32::MAX)),
                ..rule(21_024 + index, Family::V4, RuleAction::Lookup(Table(table)))
            });
        }
        wished.rules.insert(Rule {
            to: Some("10.77.0.0/24".parse().unwrap()),
            suppress_prefixlength: Some(1),
            ..rule(20_000, Family::V4, RuleAction::Lookup(Table::MAIN))
        });
        wished.rules.insert(Rule {
            from: Some("10.77.0.0/24".parse().unwrap()),
            ..rule(23_072, Family::V4, RuleAction::Unreachable)
        });
        wished.rules.insert(Rule {
            iif: Some("lan0".to_owned()),
            ..rule(21_024, Family::V6, RuleAction::Unreachable)
        });
        let text = format!(
            "table inet {TABLE} {{ }}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n\
             map client_mark {{ type ipv4_addr : mark; flags interval; elements = {{ 10.77.0.11 : 0x45470001 }} }}\n\
             chain barrier {{ type filter hook forward priority filter; policy accept;\n\
             ip saddr 10.77.0.0/24 meta mark 0 drop\n}}\n}}\n"
        );
        wished.nft = Some(NftTable { name: TABLE.to_owned(), text, listing: None });
        let mut hands = Hands::new(folder.path().to_path_buf());
        hands.systemd = false;
        Self { folder, slots, wished, hands }
    }

    fn scope(&self) -> KernelScope {
        let expected = self
            .wished
            .tunnels
            .iter()
            .map(|(slot, tunnel)| {
                let keys = Keys::from(tunnel.ends.as_ref().unwrap());
                (slot.clone(), (tunnel.config.clone().unwrap(), keys))
            })
            .collect();
        KernelScope {
            turn: 0,
            interfaces: self.slots.iter().cloned().collect(),
            owned: self.slots.iter().cloned().collect(),
            expected,
            realms: BTreeSet::from([Realm {
                protocol: 201,
                priorities: (20_000, 24_095),
                tables: (101, 110),
            }]),
            watched: BTreeSet::new(),
            nft_table: TABLE.to_owned(),
            sysctls: self.wished.sysctls.keys().cloned().collect(),
            tool: "wg".to_owned(),
            users: BTreeSet::from(["root".to_owned()]),
            bound: self
                .slots
                .iter()
                .map(|slot| ("198.51.100.1".parse().unwrap(), slot.clone()))
                .collect(),
        }
    }

    fn look(&self) -> KernelReading {
        look::kernel(&self.scope()).unwrap()
    }

    fn apply(&self, steps: &[Step]) {
        for step in steps {
            self.act(&step.action);
        }
    }

    fn act(&self, action: &Action) {
        apply(action, &self.hands).unwrap_or_else(|why| panic!("{}: {why:#}", action.command()));
    }

    fn build(&mut self) {
        self.apply(&diff(&self.look().world, &self.wished, &means()));
        // As a commit does.
        let listing = self.look().world.nft.unwrap().listing;
        self.wished.nft.as_mut().unwrap().listing = listing;
    }

    fn assert_nothing_left(&self, when: &str) {
        let left = self.look().world;
        assert_eq!(left, World::default(), "{when}");
    }
}

/// The undo of `diff(now, backup)` and that of the steps themselves, after each number of steps.
#[test]
fn an_applied_world_is_the_wished_one_and_goes_away_whole() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        let mut bench = Bench::new();
        bench.assert_nothing_left("before");
        bench.build();
        let seen = bench.look();
        assert_eq!(diff(&seen.world, &bench.wished, &means()), [], "a second plan");
        assert_eq!(seen.bindable, bench.slots.iter().cloned().collect());
        assert_eq!(seen.users.get("root"), Some(&0));
        assert_eq!(seen.strangers, BTreeSet::new());
        for slot in &bench.slots {
            let found = &seen.world.tunnels[slot];
            assert_eq!(found.config, bench.wished.tunnels[slot].config);
            assert!(found.answers && found.up && found.listen_port.is_some());
        }
        // Each action again changes nothing, but for those that make a tunnel anew.
        let again = diff(&World::default(), &bench.wished, &means());
        for step in &again {
            if !matches!(step.action, Action::CreateTunnel { .. }) {
                bench.act(&step.action);
            }
        }
        let mut now = bench.look().world;
        for (interface, tunnel) in &mut now.tunnels {
            // Only the port may be another: this plan was made for new tunnels.
            tunnel.listen_port = seen.world.tunnels[interface].listen_port;
        }
        assert_eq!(now, seen.world, "applied twice");

        let away = diff(&seen.world, &World::default(), &means());
        bench.apply(&away);
        bench.assert_nothing_left("after");
        for step in away {
            bench.act(&step.action);
        }
    });
}

/// Case C18.
#[test]
fn a_change_cut_short_anywhere_is_undone_whole() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        let bench = Bench::new();
        let steps = diff(&World::default(), &bench.wished, &means());
        for done in 0..=steps.len() {
            let (applied, _) = steps.split_at(done);
            bench.apply(applied);
            if done % 2 == 0 {
                let now = bench.look().world;
                bench.apply(&diff(&now, &World::default(), &means()));
            } else {
                for action in applied.iter().rev().flat_map(|step| &step.undo) {
                    bench.act(action);
                }
            }
            bench.assert_nothing_left(&format!("after {done} steps"));
        }
    });
}

#[test]
fn what_somebody_else_did_shows_and_is_healed() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        let mut bench = Bench::new();
        bench.build();
        let [one, two] = bench.slots.clone();
        let heal = |bench: &Bench, what: &str| {
            let now = bench.look().world;
            let steps = diff(&now, &bench.wished, &means());
            assert_ne!(steps, [], "{what} is not seen");
            bench.apply(&steps);
            let left = diff(&bench.look().world, &bench.wished, &means());
            assert_eq!(left, [], "{what} is not healed");
        };
        shell("ip rule del priority 23072");
        heal(&bench, "a missing rule");
        shell(&format!("ip route del unreachable default table 101; ip link set {one} mtu 1300"));
        heal(&bench, "a missing guard and another mtu");
        shell(&format!("nft add rule inet {TABLE} barrier accept"));
        heal(&bench, "an edited table");
        shell(&format!("ip link delete dev {one}"));
        heal(&bench, "a deleted device");
        shell(&format!("echo 0 >/proc/sys/net/ipv4/conf/{two}/src_valid_mark"));
        heal(&bench, "a changed setting");
        // A daemon that was killed takes its device along and leaves its socket.
        let daemon = daemon_of(&two);
        shell(&format!("kill -9 {daemon}; while test -e /proc/{daemon}; do sleep 0.01; done"));
        heal(&bench, "a killed daemon");
        // A daemon that hangs answers nobody, and keeps `wg show all` from ending.
        let daemon = daemon_of(&one);
        // A signal takes a moment, in which the daemon may still answer.
        shell(&format!(
            "kill -STOP {daemon}; until grep -q ') T ' /proc/{daemon}/stat; do sleep 0.01; done"
        ));
        let begun = Instant::now();
        let dead = &bench.look().world.tunnels[&one];
        assert!(!dead.answers && begun.elapsed().as_secs() < 8);
        heal(&bench, "a hung daemon");
        shell(&format!("kill -9 {daemon} 2>/dev/null || true"));
        let now = bench.look().world;
        bench.apply(&diff(&now, &World::default(), &means()));
        bench.assert_nothing_left("in the end");
    });
}

/// The process that was started as `wireguard-go INTERFACE`.
fn daemon_of(interface: &Interface) -> u32 {
    let wished = format!("wireguard-go\0{interface}\0");
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).ends_with(&wished)
        })
        .unwrap()
}

#[test]
fn a_device_of_another_kind_is_never_deleted() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        let bench = Bench::new();
        let [one, _] = &bench.slots;
        shell(&format!("ip link add {one} type bridge"));
        let backend = means().backend;
        for action in [
            Action::CreateTunnel { interface: one.clone(), backend: backend.clone() },
            Action::RemoveTunnel { interface: one.clone(), backend: backend.clone() },
        ] {
            let why = format!("{:#}", apply(&action, &bench.hands).unwrap_err());
            assert!(why.contains("is no tunnel but bridge"), "{why}");
        }
        shell(&format!("ip link show {one}"));
        let (kind, hands) = (Backend::Kernel("bridge".to_owned()), &bench.hands);
        let two = interface(&name("c"));
        apply(&Action::CreateTunnel { interface: two.clone(), backend: kind }, hands).unwrap();
        shell(&format!("ip link show {two} && ip link delete dev {two}"));
    });
}

#[test]
fn an_error_names_the_object_and_never_a_key() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        let bench = Bench::new();
        let [one, _] = bench.slots.clone();
        let tunnel = &bench.wished.tunnels[&one];
        let configure = |config: ConfigRef, tool: &str| Action::Configure {
            interface: one.clone(),
            config,
            endpoint: "192.0.2.1:1".parse().unwrap(),
            listen_port: None,
            fwmark: None,
            tool: tool.to_owned(),
        };
        let known = tunnel.config.clone().unwrap();
        let other = ConfigRef { sha256: sha256(b"x"), ..known.clone() };
        let absent = ConfigRef { file: "absent.conf".to_owned(), ..known.clone() };
        let path = bench.folder.path().join("pool/1/bad.conf");
        let secret = host_hands_space::key(1).reveal();
        let bad_text = format!("[Interface]\nPrivateKey = {secret}\n");
        std::fs::write(&path, &bad_text).unwrap();
        let bad = ConfigRef {
            file: "bad.conf".to_owned(),
            sha256: sha256(bad_text.as_bytes()),
            ..known.clone()
        };
        let tool = bench.folder.path().join("tool");
        std::fs::write(&tool, "#!/bin/sh\ncat >&2\nexit 1\n").unwrap();
        shell(&format!("chmod 755 {}", tool.display()));
        for (action, part) in [
            (configure(known.clone(), "wg"), "Protocol not supported"),
            (configure(known.clone(), tool.to_str().unwrap()), "exit code 1"),
            (configure(known, "no-such-tool"), "not on PATH"),
            (configure(other, "wg"), "not the one that was listed"),
            (configure(absent, "wg"), "absent.conf"),
            (configure(bad, "wg"), "Address in [Interface] is missing"),
        ] {
            let error = apply(&action, &bench.hands).unwrap_err();
            let why = format!("{error:#} {error:?}");
            assert!(why.contains(part) && why.contains(one.as_str()), "{part}: {why}");
            assert!(!why.contains(&secret), "{why}");
        }
        for path in ["../x", "/etc/x", "net/../x", ""] {
            let action = Action::Sysctl { path: path.to_owned(), value: "1".to_owned() };
            assert!(format!("{:#}", apply(&action, &bench.hands).unwrap_err()).contains("no path"));
        }
    });
}

#[test]
fn a_way_is_the_kernels_and_a_refused_one_is_none() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        let mut bench = Bench::new();
        bench.build();
        let [one, _] = bench.slots.clone();
        let ask = |mark: u32| {
            let to = "198.51.100.1".parse().unwrap();
            route_get(&RouteQuery { to, from: None, mark: Some(Mark(mark)), uid: None })
        };
        let way = ask(0x4547_0001).unwrap().unwrap();
        assert_eq!(way.dev.as_deref(), Some(one.as_str()));
        assert_eq!(ask(0).unwrap(), None, "no route at all");
        bench.act(&Action::DeleteRoute(route(101, Some(&one))));
        assert_eq!(ask(0x4547_0001).unwrap(), None, "only the guard");
        let from = Some(("10.77.0.11".parse().unwrap(), interface("nix0")));
        let to = "198.51.100.1".parse().unwrap();
        assert!(route_get(&RouteQuery { to, from, mark: Some(Mark(1)), uid: None }).is_err());
        let now = bench.look().world;
        bench.apply(&diff(&now, &World::default(), &means()));
    });
}

/// Case C38.
#[test]
fn a_cut_ends_its_own_flows_and_no_other() {
    if !may() {
        return;
    }
    let space = Space::new();
    space.run(|| {
        // Entries with a translation are refused while nobody in the namespace translates.
        shell("nft 'add table ip n; add chain ip n p { type nat hook postrouting priority 100; }'");
        let flow = |from: &str, port: u32, mark: u32| {
            shell(&format!(
                "conntrack -I -s {from} -d 192.0.2.1 -p udp --sport {port} --dport 9 -t 60 -m {mark} 2>&1"
            ));
        };
        for port in 1..=3 {
            flow("10.77.0.11", port, 0x4547_0001);
            // What is translated ends at the gateway, so its flow is ended whatever it is.
            shell(&format!(
                "conntrack -I -s 10.77.0.12 -d 192.0.2.1 -p udp --sport {port} --dport 9 -t 60 -m 0 \
                 --src-nat 203.0.113.2 2>&1"
            ));
        }
        shell(
            "conntrack -I -s 10.77.0.12 -d 192.0.2.1 -p tcp --sport 5 --dport 9 --state ESTABLISHED \
             -t 60 -m 0 2>&1",
        );
        // What is not translated and is no TCP could be opened anew from outside: it stays closed in.
        flow("10.77.0.12", 7, 0);
        flow("10.77.1.12", 1, 0);
        shell("conntrack -I -s fd77::1 -d fd78::1 -p udp --sport 1 --dport 9 -t 60 -m 7 2>&1");
        assert_eq!(cut(&Cut::Marked(Mark(7))).unwrap(), CutResult::Ended(1), "IPv6 too");
        let marked = Cut::Marked(Mark(0x4547_0001));
        assert_eq!(cut(&marked).unwrap(), CutResult::Ended(3));
        assert_eq!(cut(&marked).unwrap(), CutResult::Ended(0));
        let unmarked = Cut::Unmarked("10.77.0.0/24".parse().unwrap());
        assert_eq!(cut(&unmarked).unwrap(), CutResult::Ended(4));
        assert_eq!(cut(&Cut::Unmarked("fd00::/8".parse().unwrap())).unwrap(), CutResult::Ended(0));
        let left = shell("conntrack -L 2>/dev/null");
        assert!(left.contains("10.77.1.12") && left.contains("sport=7"), "{left}");
    });
}

#[test]
fn a_missing_tool_says_what_to_install() {
    let bench = Bench::new();
    let scope = KernelScope { tool: "awg".to_owned(), ..bench.scope() };
    let why = format!("{:#}", look::kernel(&scope).unwrap_err());
    assert!(why.contains("install amneziawg-tools"), "{why}");
}
