//! A kernel as a value: what `ip`, `wg`, `nft` and `conntrack` read and change, and what stands behind the tunnels.
//!
//! A small program is linked under those names first on PATH. It asks here what to say, one call
//! after the other, each in less than a millisecond.
//!
//! **Invariant:** one call is one change of the kernel, done wholly or not at all; a call that is not
//! known here fails, so that nothing is believed to be done that was not.

use crate::space::Space;
use crate::zone::Zone;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egressctl::iproute::{Family, Route, RouteKind, Rule, RuleAction};
use egressctl::names::Table;
use egressctl::wireguard::SecretKey;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};

/// Where the programs ask, for them.
pub const PLACE: &str = "CRASH_WORLD";

/// The names under which the small program plays another one.
pub const PROGRAMS: [&str; 5] = ["ip", "wg", "nft", "conntrack", "knsupdate"];

/// The gateway's own subnets and its default route, which stand in main.
const MAIN: [(&str, &str); 3] =
    [("10.77.0.0/24", "eth1"), ("203.0.113.0/24", "eth0"), ("0.0.0.0/0", "eth0")];

/// How an endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// It carries requests.
    Alive,
    /// It shakes no hands.
    Dead,
    /// It passes its trial and carries nothing in a slot.
    TrialOnly,
    /// It carries small packets only, unless the tunnel's MTU is small.
    Small,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Another one after the device was made anew.
    pub index: u32,
    /// Empty for a real card.
    pub kind: String,
    pub up: bool,
    pub mtu: u32,
    pub addresses: Vec<IpNet>,
    pub private_key: Option<String>,
    pub port: u16,
    pub mark: Option<u32>,
    pub peer: Option<Peer>,
}

/// The peer of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub key: String,
    pub preshared: Option<String>,
    pub endpoint: String,
    pub allowed: String,
    pub keepalive: Option<u16>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    pub links: BTreeMap<String, Link>,
    pub last_index: u32,
    pub rules: Vec<Rule>,
    pub routes: Vec<Route>,
    pub nft: BTreeMap<String, String>,
    /// What stands behind the tunnels, by `ADDRESS:PORT`.
    pub endpoints: BTreeMap<String, Health>,
    /// Whether the uplink carries requests.
    pub wan: bool,
    /// What the provider lists; nothing: it does not answer.
    pub list: Option<Vec<usize>>,
    /// Whether the provider answers those who come by a tunnel alone.
    pub list_by_tunnel_only: bool,
    /// Proxies and members of a core through which nothing is answered, and nodes that are dead.
    pub failing: BTreeSet<String>,
    /// What host names stand for, at a server elsewhere.
    pub zone: Zone,
    /// The public half of each private key, which is reckoned once: it takes this unoptimised program long.
    pub publics: BTreeMap<String, String>,
    /// How many calls there were, each counted before it does anything.
    pub calls: u64,
    /// At this call the program hangs instead of doing anything; 0: at none.
    pub hangs_at: u64,
}

impl World {
    /// A gateway with nothing of ours.
    pub fn bare() -> Self {
        let card = |index: u32, address: &str| Link {
            index,
            up: true,
            mtu: 1_500,
            addresses: vec![address.parse().expect("an address")],
            ..Link::default()
        };
        Self {
            links: BTreeMap::from([
                ("eth0".to_owned(), card(2, "203.0.113.2/24")),
                ("eth1".to_owned(), card(3, "10.77.0.1/24")),
            ]),
            last_index: 3,
            wan: true,
            ..Self::default()
        }
    }

    /// The same gateway after it was started anew: what is behind it stays, what we made is gone.
    pub fn rebooted(&self) -> Self {
        Self {
            endpoints: self.endpoints.clone(),
            wan: self.wan,
            list: self.list.clone(),
            list_by_tunnel_only: self.list_by_tunnel_only,
            failing: self.failing.clone(),
            zone: self.zone.clone(),
            publics: self.publics.clone(),
            last_index: self.last_index,
            links: self
                .links
                .iter()
                .filter(|(_, link)| link.kind.is_empty())
                .map(|(name, link)| (name.clone(), link.clone()))
                .collect(),
            ..Self::bare()
        }
    }

    /// How what is loaded in a device behaves; `None`: nothing is there that could answer.
    pub fn behind(&self, device: &str) -> Option<Health> {
        let link = self.links.get(device).filter(|link| link.up && !link.addresses.is_empty())?;
        self.endpoints.get(&link.peer.as_ref()?.endpoint).copied()
    }

    /// Whether a request by this device is answered.
    pub fn carries(&self, device: &str, large: bool) -> bool {
        // What runs inside of another tunnel is lost with it.
        if device == "ch2" && !self.carries("ch1", large) {
            return false;
        }
        let small_mtu = self.links.get(device).is_some_and(|link| link.mtu <= 1_280);
        match self.behind(device) {
            Some(Health::Alive) => true,
            Some(Health::TrialOnly) => device.starts_with("vpnt"),
            Some(Health::Small) => !large || small_mtu,
            Some(Health::Dead) | None => false,
        }
    }

    /// Which way a packet takes by the rules; `None`: it is refused.
    fn way(&self, to: IpAddr, from: Option<IpAddr>, mark: u32) -> Option<(String, u32)> {
        let mut rules: Vec<&Rule> =
            self.rules.iter().filter(|rule| rule.family == Family::of(to)).collect();
        rules.sort_by_key(|rule| rule.priority);
        for rule in rules {
            let within = |net: Option<IpNet>, ip: Option<IpAddr>| {
                net.is_none_or(|net| ip.is_some_and(|ip| net.contains(&ip)))
            };
            let marked = rule.fwmark.is_none_or(|(value, mask)| mark & mask == value & mask);
            let plain = rule.uid_range.is_none() && rule.iif.is_none() && rule.oif.is_none();
            if !(within(rule.to, Some(to)) && within(rule.from, from) && marked && plain) {
                continue;
            }
            match &rule.action {
                RuleAction::Unreachable => return None,
                RuleAction::Other(_) => {}
                RuleAction::Lookup(table) => match self.look_up(*table, to) {
                    Some((length, _))
                        if rule.suppress_prefixlength.is_some_and(|most| length <= most) => {}
                    Some((_, Some(device))) => return Some((device, table.0)),
                    Some((_, None)) => return None,
                    None => {}
                },
            }
        }
        self.look_up(Table::MAIN, to).and_then(|(_, device)| Some((device?, Table::MAIN.0)))
    }

    /// The best route of a table: its length, and its device unless it refuses.
    fn look_up(&self, table: Table, to: IpAddr) -> Option<(u8, Option<String>)> {
        if table == Table::MAIN {
            let routes =
                MAIN.iter().map(|(net, device)| (net.parse::<IpNet>().expect("a net"), device));
            return routes
                .filter(|(net, _)| net.contains(&to))
                .max_by_key(|(net, _)| net.prefix_len())
                .map(|(net, device)| (net.prefix_len(), Some((*device).to_owned())));
        }
        self.routes
            .iter()
            .filter(|route| route.table == table && route.destination.contains(&to))
            .max_by_key(|route| {
                (route.destination.prefix_len(), std::cmp::Reverse(route.metric.unwrap_or(0)))
            })
            .map(|route| {
                let device = route.dev.clone().filter(|_| route.kind == RouteKind::Unicast);
                (route.destination.prefix_len(), device)
            })
    }
}

/// What a program says and ends with.
struct Said {
    code: i32,
    out: String,
    err: String,
}

fn says(out: impl Into<String>) -> Said {
    Said { code: 0, out: out.into(), err: String::new() }
}

fn fails(code: i32, err: &str) -> Said {
    Said { code, out: String::new(), err: err.to_owned() }
}

/// A world that programs ask and change.
#[derive(Clone)]
pub struct Shared {
    world: Arc<Mutex<World>>,
    at: SocketAddr,
}

impl Shared {
    /// Answers programs in a namespace until this process ends.
    pub fn serve(space: &Space, world: World) -> Self {
        let world = Arc::new(Mutex::new(world));
        let (space, shared, (ready, is_ready)) =
            (space.clone(), Arc::clone(&world), mpsc::channel());
        std::thread::spawn(move || {
            space.inside(|| {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
                ready.send(listener.local_addr().expect("it is bound")).expect("somebody waits");
                for stream in listener.incoming().flatten() {
                    // Whoever asked may be dead already.
                    let _gone = answer(stream, &shared);
                }
            });
        });
        Self { world, at: is_ready.recv().expect("it listens") }
    }

    /// Where programs ask.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// The world, to be looked at and changed.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no thread panicked")
    }
}

/// What `program` says to one that hangs.
const HANGS: i32 = 1_000;

fn answer(mut stream: TcpStream, world: &Mutex<World>) -> std::io::Result<()> {
    let mut asked = Vec::new();
    stream.read_to_end(&mut asked)?;
    let head = asked.iter().position(|byte| *byte == b'\n').unwrap_or(asked.len());
    let (head, rest) = asked.split_at(head);
    let whole = std::str::from_utf8(head).ok().and_then(|text| text.parse::<usize>().ok());
    // Whoever was killed while it asked has asked for nothing.
    let Some(mut rest) = rest.get(1..).filter(|rest| Some(rest.len()) == whole) else {
        return Ok(());
    };
    let number = |rest: &mut &[u8]| -> usize {
        let end = rest.iter().position(|byte| *byte == b'\n').expect("a number ends");
        let text = std::str::from_utf8(&rest[..end]).expect("a number is text");
        *rest = &rest[end + 1..];
        text.parse().expect("a number")
    };
    let mut words = Vec::new();
    for _ in 0..number(&mut rest) {
        let length = number(&mut rest);
        let (begin, end) = rest.split_at(length);
        words.push(std::str::from_utf8(begin).expect("a word is text"));
        rest = end;
    }
    let name = Path::new(words[0]).file_name().unwrap_or_default().to_string_lossy();
    let input = std::str::from_utf8(rest).expect("an input is text");
    let said = play(&mut world.lock().expect("no thread panicked"), &name, &words[1..], input);
    let head = format!("{} {}\n", said.code, said.out.len());
    stream.write_all(&[head.as_bytes(), said.out.as_bytes(), said.err.as_bytes()].concat())?;
    stream.shutdown(Shutdown::Write)
}

/// Makes the small program; it lies at `to` afterwards.
pub fn make_program(to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/program.rs");
    let beside_cargo = Path::new(env!("CARGO")).with_file_name("rustc");
    let rustc = if beside_cargo.exists() { beside_cargo } else { PathBuf::from("rustc") };
    let made = Command::new(rustc)
        .args(["--edition", "2024", "-O", "-C", "panic=abort", "-C", "strip=symbols"])
        // It is started more often than anything else here: no loader, nothing to relocate.
        .args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static", "-o"])
        .args([to, &source])
        .output()
        .expect("rustc starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Plays the program `name`.
fn play(world: &mut World, name: &str, words: &[&str], input: &str) -> Said {
    world.calls += 1;
    if world.hangs_at == world.calls {
        return Said { code: HANGS, out: String::new(), err: String::new() };
    }
    match name {
        "ip" => ip(world, words, input),
        "wg" => wg(world, words, input),
        "nft" => nft(world, words, input),
        "conntrack" => {
            fails(1, "conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.\n")
        }
        "knsupdate" if world.zone.update(input) => says(""),
        "knsupdate" => fails(1, "update failed with error 'NXRRSET'\n"),
        other => fails(127, &format!("{other} is played by nobody")),
    }
}

fn ip(world: &mut World, words: &[&str], input: &str) -> Said {
    let six = words.contains(&"-6");
    let plain: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !["-N", "-j", "-d", "-4", "-6", "-o"].contains(word))
        .collect();
    if plain.first() == Some(&"-batch") {
        let mut out = String::new();
        for line in input.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let said = ip_one(world, &words, six);
            out.push_str(&said.out);
            if said.code != 0 {
                return Said { code: 1, out, err: said.err };
            }
        }
        return says(out);
    }
    ip_one(world, &plain, six)
}

fn ip_one(world: &mut World, words: &[&str], six: bool) -> Said {
    match words {
        ["addr", "show"] => says(listing(&links(world, |_| true))),
        ["link", "show", "dev", name] => {
            if world.links.contains_key(*name) {
                says(listing(&links(world, |other| other == *name)))
            } else {
                let why = format!("Cannot find device \"{name}\"\n");
                fails(1, &format!("Device \"{name}\" does not exist.\n{why}"))
            }
        }
        ["rule", "show"] => says(listing(&rules(world, six))),
        ["route", "show", "default"] => says(
            "[{\"type\":\"1\",\"dst\":\"default\",\"gateway\":\"203.0.113.1\",\"dev\":\"eth0\",\"protocol\":\"3\",\"scope\":\"0\",\"flags\":[]}]\n",
        ),
        ["route", "show", "table", "all", "protocol", number] => {
            let number: u8 = number.parse().expect("a number");
            says(listing(&routes(world, false, |route| route.protocol == Some(number))))
        }
        ["route", "show", "table", table] => {
            let table = Table(table.parse().expect("a table"));
            says(listing(&routes(world, true, |route| route.table == table)))
        }
        ["route", "get", to, rest @ ..] => route_get(world, to, rest),
        ["link", "add", "dev", name, "type", kind] => {
            if world.links.contains_key(*name) {
                return fails(2, "RTNETLINK answers: File exists\n");
            }
            world.last_index += 1;
            let link = Link {
                index: world.last_index,
                kind: (*kind).to_owned(),
                mtu: 1_420,
                ..Link::default()
            };
            world.links.insert((*name).to_owned(), link);
            fresh_settings(name);
            says("")
        }
        ["link", "delete", "dev", name] => match world.links.remove(*name) {
            Some(_) => {
                world.routes.retain(|route| route.dev.as_deref() != Some(name));
                fresh_settings(name);
                says("")
            }
            None => fails(1, &format!("Cannot find device \"{name}\"\n")),
        },
        ["link", "set", "dev", name, "mtu", mtu, "up"] => {
            let Some(link) = world.links.get_mut(*name) else {
                return fails(1, &format!("Cannot find device \"{name}\"\n"));
            };
            link.mtu = mtu.parse().expect("an MTU");
            link.up = true;
            says("")
        }
        ["address", verb, address, "dev", name] => {
            let Some(link) = world.links.get_mut(*name) else {
                return fails(1, &format!("Cannot find device \"{name}\"\n"));
            };
            let address: IpNet = address.parse().expect("an address");
            let there = link.addresses.contains(&address);
            match (*verb, there) {
                ("replace", true) => {}
                ("replace", false) => link.addresses.push(address),
                ("delete", true) => {
                    link.addresses.retain(|other| *other != address);
                    // The last one takes the device's routes in all tables with it.
                    if link.addresses.is_empty() {
                        world.routes.retain(|route| route.dev.as_deref() != Some(name));
                    }
                }
                ("delete", false) => {
                    return fails(2, "RTNETLINK answers: Cannot assign requested address\n");
                }
                (other, _) => return fails(255, &format!("what is address {other}?\n")),
            }
            says("")
        }
        ["rule", verb, rest @ ..] => rule(world, verb, rest, six),
        ["route", verb, rest @ ..] => route(world, verb, rest, six),
        other => fails(255, &format!("what is ip {}?\n", other.join(" "))),
    }
}

/// Gives the settings of a device the values that they have on a new one. The devices themselves are
/// there for good, so those of one that is not there have them, too.
pub fn fresh_settings(name: &str) {
    for key in ["rp_filter", "src_valid_mark"] {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/{key}");
        fs::write(&path, "0").unwrap_or_else(|why| panic!("{path}: {why}"));
    }
}

fn listing(entries: &[Value]) -> String {
    format!("{}\n", Value::Array(entries.to_vec()))
}

fn links(world: &World, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let addresses = |link: &Link| -> Vec<Value> {
        let one = |net: &IpNet| {
            let family = if net.addr().is_ipv4() { "inet" } else { "inet6" };
            json!({ "family": family, "local": net.addr(), "prefixlen": net.prefix_len(), "scope": "0" })
        };
        link.addresses.iter().map(one).collect()
    };
    let one = |(name, link): (&String, &Link)| {
        let flags = if link.up { json!(["UP", "LOWER_UP"]) } else { json!([]) };
        let mut value = json!({ "ifindex": link.index, "ifname": name, "flags": flags,
                                "mtu": link.mtu, "addr_info": addresses(link) });
        if !link.kind.is_empty() {
            value["linkinfo"] = json!({ "info_kind": link.kind });
        }
        value
    };
    world.links.iter().filter(|(name, _)| wanted(name)).map(one).collect()
}

fn rules(world: &World, six: bool) -> Vec<Value> {
    let family = if six { Family::V6 } else { Family::V4 };
    let mut all: Vec<&Rule> = world.rules.iter().filter(|rule| rule.family == family).collect();
    all.sort_by_key(|rule| rule.priority);
    let mut shown = vec![json!({ "priority": 0, "src": "all", "table": "255", "protocol": "2" })];
    shown.extend(all.into_iter().map(|rule| {
        let mut value = json!({ "priority": rule.priority, "src": "all" });
        let mut prefix = |name: &str, length: &str, net: Option<IpNet>| {
            if let Some(net) = net {
                value[name] = json!(net.addr());
                value[length] = json!(net.prefix_len());
            }
        };
        prefix("src", "srclen", rule.from);
        prefix("dst", "dstlen", rule.to);
        if let Some((mark, mask)) = rule.fwmark {
            value["fwmark"] = json!(format!("{mark:#x}"));
            if mask != u32::MAX {
                value["fwmask"] = json!(format!("{mask:#x}"));
            }
        }
        for (name, device) in [("iif", &rule.iif), ("oif", &rule.oif)] {
            if let Some(device) = device {
                value[name] = json!(device);
            }
        }
        if let Some((first, last)) = rule.uid_range {
            value["uid_start"] = json!(first);
            value["uid_end"] = json!(last);
        }
        if let Some(length) = rule.suppress_prefixlength {
            value["suppress_prefixlen"] = json!(length);
        }
        match &rule.action {
            RuleAction::Lookup(table) => value["table"] = json!(table.0.to_string()),
            RuleAction::Unreachable => value["action"] = json!("7"),
            RuleAction::Other(other) => value["action"] = json!(other),
        }
        if let Some(protocol) = rule.protocol {
            value["protocol"] = json!(protocol.to_string());
        }
        value
    }));
    shown.push(json!({ "priority": 32_766, "src": "all", "table": "254", "protocol": "2" }));
    shown
}

fn routes(world: &World, protocol: bool, wanted: impl Fn(&Route) -> bool) -> Vec<Value> {
    let one = |route: &Route| {
        let kind = if route.kind == RouteKind::Unreachable { "7" } else { "1" };
        let scope =
            if route.kind == RouteKind::Unicast && route.via.is_none() { "253" } else { "0" };
        let to = if route.destination.prefix_len() == 0 {
            "default".to_owned()
        } else {
            route.destination.to_string()
        };
        // A protocol that was asked for is not shown.
        let mut value = json!({ "type": kind, "dst": to, "table": route.table.0.to_string(),
                                "scope": scope, "flags": [] });
        if let Some(via) = route.via {
            value["gateway"] = json!(via);
        }
        if let Some(device) = &route.dev {
            value["dev"] = json!(device);
        }
        if let Some(metric) = route.metric {
            value["metric"] = json!(metric);
        }
        if let Some(number) = route.protocol.filter(|_| protocol) {
            value["protocol"] = json!(number.to_string());
        }
        value
    };
    world.routes.iter().filter(|route| wanted(route)).map(one).collect()
}

/// The word after `key`.
fn after<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied()
}

fn route_get(world: &World, to: &str, words: &[&str]) -> Said {
    let to: IpAddr = to.parse().expect("an address");
    let answer = |device: &str, table: u32| {
        let mut way = json!({ "dst": to, "dev": device, "flags": [], "cache": [] });
        if table != Table::MAIN.0 {
            way["table"] = json!(table.to_string());
        }
        says(format!("[{way}]\n"))
    };
    if let Some(device) = after(words, "oif") {
        // Without a route the kernel takes the destination for a neighbour.
        return match world.links.get(device) {
            Some(link) if link.up => answer(device, Table::MAIN.0),
            Some(_) => fails(2, "RTNETLINK answers: Network is unreachable\n"),
            None => fails(1, &format!("Cannot find device \"{device}\"\n")),
        };
    }
    let from = after(words, "from").map(|from| from.parse().expect("an address"));
    let mark = after(words, "mark").map_or(0, hex);
    match world.way(to, from, mark) {
        Some((device, table)) => answer(&device, table),
        None => fails(2, "RTNETLINK answers: No route to host\n"),
    }
}

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).expect("a number")
}

fn net(text: &str, family: Family) -> IpNet {
    match (text, family) {
        ("default", Family::V4) => "0.0.0.0/0".parse().expect("a net"),
        ("default", Family::V6) => "::/0".parse().expect("a net"),
        _ => text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).expect("a net"),
    }
}

fn rule(world: &mut World, verb: &str, words: &[&str], six: bool) -> Said {
    let family = if six { Family::V6 } else { Family::V4 };
    let number = |key: &str| after(words, key).map(|text| text.parse::<u32>().expect("a number"));
    let rule = Rule {
        priority: number("priority").expect("a priority"),
        family,
        from: after(words, "from").map(|text| net(text, family)),
        to: after(words, "to").map(|text| net(text, family)),
        not: words.contains(&"not"),
        fwmark: after(words, "fwmark").map(|text| {
            let (value, mask) = text.split_once('/').expect("a mask");
            (hex(value), hex(mask))
        }),
        iif: after(words, "iif").map(str::to_owned),
        oif: after(words, "oif").map(str::to_owned),
        uid_range: after(words, "uidrange").map(|text| {
            let (first, last) = text.split_once('-').expect("a range");
            (first.parse().expect("a uid"), last.parse().expect("a uid"))
        }),
        action: match after(words, "lookup") {
            Some("main") => RuleAction::Lookup(Table::MAIN),
            Some(table) => RuleAction::Lookup(Table(table.parse().expect("a table"))),
            None => RuleAction::Unreachable,
        },
        suppress_prefixlength: after(words, "suppress_prefixlength")
            .map(|text| text.parse().expect("a length")),
        protocol: after(words, "protocol").map(|text| text.parse().expect("a protocol")),
        other: false,
    };
    match verb {
        "add" if world.rules.contains(&rule) => fails(2, "RTNETLINK answers: File exists\n"),
        "add" => {
            world.rules.push(rule);
            says("")
        }
        "del" => match rule.deletes(&world.rules).cloned() {
            Some(found) => {
                world.rules.retain(|other| *other != found);
                says("")
            }
            None => fails(2, "RTNETLINK answers: No such file or directory\n"),
        },
        other => fails(255, &format!("what is rule {other}?\n")),
    }
}

fn route(world: &mut World, verb: &str, words: &[&str], six: bool) -> Said {
    let family = if six { Family::V6 } else { Family::V4 };
    let (kind, words) = match words {
        ["unreachable", rest @ ..] => (RouteKind::Unreachable, rest),
        ["unicast", rest @ ..] | rest => (RouteKind::Unicast, rest),
    };
    let metric = after(words, "metric").map(|text| text.parse::<u32>().expect("a metric"));
    let usual = if six { 1_024 } else { 0 };
    let route = Route {
        family,
        kind,
        destination: net(words.first().expect("a destination"), family),
        via: after(words, "via").map(|text| text.parse().expect("an address")),
        dev: after(words, "dev").filter(|name| *name != "lo").map(str::to_owned),
        table: Table(after(words, "table").map_or(254, |text| text.parse().unwrap_or(254))),
        metric: metric.filter(|metric| *metric != usual),
        protocol: after(words, "protocol").map(|text| text.parse().expect("a protocol")),
        other: false,
    };
    let same = |other: &Route| {
        other.family == route.family
            && other.table == route.table
            && other.destination == route.destination
            && other.metric == route.metric
    };
    match verb {
        "replace" => {
            if let Some(device) = &route.dev
                && !world.links.get(device).is_some_and(|link| link.up)
            {
                return fails(2, "RTNETLINK answers: Network is down\n");
            }
            world.routes.retain(|other| !same(other));
            world.routes.push(route);
            world.routes.sort();
            says("")
        }
        "del" => match route.deletes(&world.routes).cloned() {
            Some(found) => {
                world.routes.retain(|other| *other != found);
                says("")
            }
            None => fails(2, "RTNETLINK answers: No such process\n"),
        },
        other => fails(255, &format!("what is route {other}?\n")),
    }
}

fn nft(world: &mut World, words: &[&str], input: &str) -> Said {
    let missing = || fails(1, "Error: No such file or directory\n");
    match words {
        ["list", "table", "inet", name] => match world.nft.get(*name) {
            Some(listing) => says(listing.clone()),
            None => missing(),
        },
        ["delete", "table", "inet", name] => match world.nft.remove(*name) {
            Some(_) => says(""),
            None => missing(),
        },
        ["-f", "-"] => load(world, input),
        other => fails(1, &format!("what is nft {}?\n", other.join(" "))),
    }
}

/// Loads a text that replaces one table.
fn load(world: &mut World, text: &str) -> Said {
    let name = text.lines().find_map(|line| line.strip_prefix("delete table inet "));
    let Some(name) = name else { return fails(1, "the text replaces no table\n") };
    let head = format!("delete table inet {name}\n");
    let Some((_, listing)) = text.split_once(&head) else { return fails(1, "no table\n") };
    if !listing.trim_end().ends_with('}') {
        return fails(1, "/dev/stdin:1:1: Error: syntax error, unexpected end of file\n");
    }
    world.nft.insert(name.to_owned(), listing.to_owned());
    says("")
}

/// Loads what closes the clients at boot, as its unit would.
pub fn load_barrier(world: &mut World, text: &str) {
    assert_eq!(load(world, text).code, 0, "a barrier loads: {text}");
}

fn wg(world: &mut World, words: &[&str], input: &str) -> Said {
    let no_device = "Unable to modify interface: No such device\n";
    match words {
        ["show", "all", "dump"] => {
            let tunnels = world.links.iter().filter(|(_, link)| !link.kind.is_empty());
            says(
                tunnels
                    .map(|(name, link)| dump(world, name, link, &format!("{name}\t")))
                    .collect::<String>(),
            )
        }
        ["show", name, "dump"] => match world.links.get(*name) {
            Some(link) => says(dump(world, name, link, "")),
            None => fails(1, "Unable to access interface: No such device\n"),
        },
        ["show", name, "latest-handshakes"] => match world.links.get(*name) {
            Some(link) => {
                let one = |peer: &Peer| format!("{}\t{}\n", peer.key, handshake(world, name));
                says(link.peer.iter().map(one).collect::<String>())
            }
            None => fails(1, "Unable to access interface: No such device\n"),
        },
        ["setconf", name, "/dev/stdin"] => {
            let taken: BTreeSet<u16> = world.links.values().map(|link| link.port).collect();
            let Some(link) = world.links.get_mut(*name) else { return fails(1, no_device) };
            let mut fresh = Link { private_key: None, mark: None, peer: None, ..link.clone() };
            for line in input.lines() {
                let Some((key, value)) = line.split_once(" = ") else { continue };
                let peer = |fresh: &mut Link, set: &dyn Fn(&mut Peer)| {
                    set(fresh.peer.get_or_insert_with(Peer::default));
                };
                match key {
                    "PrivateKey" => fresh.private_key = Some(value.to_owned()),
                    "ListenPort" => fresh.port = value.parse().expect("a port"),
                    "FwMark" => fresh.mark = (value != "off").then(|| hex(value)),
                    "PublicKey" => peer(&mut fresh, &|peer| value.clone_into(&mut peer.key)),
                    "PresharedKey" => {
                        peer(&mut fresh, &|peer| peer.preshared = Some(value.to_owned()));
                    }
                    "Endpoint" => peer(&mut fresh, &|peer| value.clone_into(&mut peer.endpoint)),
                    "AllowedIPs" => peer(&mut fresh, &|peer| peer.allowed = value.replace(' ', "")),
                    "PersistentKeepalive" => {
                        peer(&mut fresh, &|peer| peer.keepalive = value.parse().ok());
                    }
                    other => return fails(1, &format!("Line unrecognized: `{other}'\n")),
                }
            }
            if fresh.port == 0 {
                fresh.port =
                    (40_000..50_000).find(|port| !taken.contains(port)).expect("a free port");
            }
            *link = fresh;
            says("")
        }
        ["set", name, "peer", key, "endpoint", endpoint] => {
            let Some(link) = world.links.get_mut(*name) else { return fails(1, no_device) };
            if let Some(peer) = link.peer.as_mut().filter(|peer| peer.key == *key) {
                (*endpoint).clone_into(&mut peer.endpoint);
            }
            says("")
        }
        other => fails(1, &format!("what is wg {}?\n", other.join(" "))),
    }
}

fn handshake(world: &World, name: &str) -> u64 {
    match world.behind(name) {
        Some(Health::Alive | Health::TrialOnly | Health::Small) => 1_700_000_000,
        Some(Health::Dead) | None => 0,
    }
}

fn dump(world: &World, name: &str, link: &Link, before: &str) -> String {
    let none = || "(none)".to_owned();
    let key = link.private_key.as_deref();
    let public = key.and_then(|key| world.publics.get(key)).cloned();
    let mark = link.mark.map_or_else(|| "off".to_owned(), |mark| format!("{mark:#x}"));
    let mut text = format!(
        "{before}{}\t{}\t{}\t{mark}\n",
        key.map_or_else(none, str::to_owned),
        public.unwrap_or_else(none),
        link.port
    );
    if let Some(peer) = &link.peer {
        let keepalive = peer.keepalive.map_or_else(|| "off".to_owned(), |sec| sec.to_string());
        text += &format!(
            "{before}{}\t{}\t{}\t{}\t{}\t0\t0\t{keepalive}\n",
            peer.key,
            peer.preshared.clone().unwrap_or_else(none),
            peer.endpoint,
            peer.allowed,
            handshake(world, name),
        );
    }
    text
}

/// A pair of keys for a number; keys need only differ here.
fn keys(of: u8, k: usize) -> (String, String) {
    let mut seed = [0x5a_u8; 32];
    seed[8] = of;
    seed[9] = u8::try_from(k).expect("there are few");
    let secret = SecretKey::from_base64(&STANDARD.encode(seed)).expect("a key");
    (secret.reveal(), secret.public().to_string())
}

/// Where endpoint `k` is.
pub fn endpoint(k: usize) -> SocketAddr {
    format!("198.51.100.{}:{}", 10 + k, 51_820 + k).parse().expect("an address")
}

/// So many endpoints there are.
pub const ENDPOINTS: usize = 12;

/// What is known of an endpoint.
pub struct Known {
    /// Its wg-quick file.
    pub config: String,
    /// All by which it can be told from another.
    pub marks: Vec<String>,
    pub private: String,
    pub public: String,
}

/// Endpoint `k`, from 1; all are reckoned once.
pub fn known(k: usize) -> &'static Known {
    static ALL: OnceLock<Vec<Known>> = OnceLock::new();
    &ALL.get_or_init(|| (0..=ENDPOINTS).map(make_known).collect())[k]
}

fn make_known(k: usize) -> Known {
    let ((private, public), (_, server)) = (keys(0, k), keys(1, k));
    let config = format!(
        "[Interface]\nPrivateKey = {private}\nAddress = 10.64.{k}.2/32\n\n[Peer]\nPublicKey = {server}\n\
         AllowedIPs = 0.0.0.0/0\nEndpoint = {}\nPersistentKeepalive = 25\n",
        endpoint(k)
    );
    let marks = vec![
        public.clone(),
        server,
        private.clone(),
        endpoint(k).to_string(),
        endpoint(k).ip().to_string(),
        endpoint(k).port().to_string(),
        format!("10.64.{k}.2"),
        format!("p{k}"),
    ];
    Known { config, marks, private, public }
}
