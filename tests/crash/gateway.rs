//! A gateway in a network namespace of its own, whose kernel is the value of `world`, and the web behind its devices.
//!
//! Every device that a policy may name is there for good, joined to the web by a pair of its own, so
//! that requests can be bound to it. Whether it exists, and what is loaded in it, says the world: the
//! web asks it about each request, and is silent where nothing would have carried that.
//!
//! **Invariant:** a scene is all that a run can find, so that a run from a scene put back goes as it went before.

use crate::cut::{self, Cut, Kept};
use crate::fake_core::proxy::{FakeProxy, Way};
use crate::fake_core::{Core, FakeCore};
use crate::space::{self, Ground, Space};
use crate::world::{self, PLACE, PROGRAMS, Shared, World};
use crate::zone::{self, Nodes};
use crate::{names, web};
use egressctl::kernel::NftTable;
use egressctl::simulate::packet::{Exit, Layers, new_flow};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Devices that exist for the sake of bound requests. The first is the uplink.
pub const DEVICES: [&str; 10] =
    ["eth0", "vpn1", "vpn2", "vpn3", "vpnt1", "vpnboot", "ch1", "ch2", "ch1t", "ch2t"];

/// Stands for the gateway's folder in a scene, which may be put back on another gateway.
const HOME: &str = "@GATEWAY@";

/// The name of the policy.
pub const POLICY: &str = "home";

/// All that a run finds.
#[derive(Clone, Debug)]
pub struct Scene {
    pub policy: String,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub world: World,
    pub sysctls: BTreeMap<String, String>,
    pub core: Core,
    /// When it was so: put back later, all that is remembered is as long ago as it was then.
    pub taken: Instant,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// `None`: it was killed.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// The report of a step that was told to give one.
    pub fn report(&self) -> Value {
        serde_json::from_str(self.out.trim()).unwrap_or(Value::Null)
    }
}

/// One gateway.
pub struct Gateway {
    folder: PathBuf,
    gw: Space,
    web: Space,
    kernel: Shared,
    zone: SocketAddr,
    nodes: Nodes,
    core: FakeCore,
    proxies: BTreeMap<&'static str, FakeProxy>,
    _ground: Ground,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// Removes what gateways of processes that do not live any more have left.
fn sweep(memory: &Path) {
    for entry in fs::read_dir(memory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if names::pid_in(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}

/// A core that has a group for each kind of policy.
fn first_core() -> Core {
    let mut core = Core::sing_box("out", &["main", "spare", "third"]);
    let mut group = |name: &str, members: &[&str]| {
        let all = members.iter().map(|member| (*member).to_owned()).collect();
        core.groups.insert(name.to_owned(), (all, members[0].to_owned()));
    };
    group("select", &["auto", "a", "b", "c"]);
    group("auto", &["a", "b", "c"]);
    group("entry", &["a1", "a2"]);
    group("exit", &["b1", "b2"]);
    for (member, ms) in
        [("a", 20), ("b", 30), ("c", 40), ("a1", 20), ("a2", 30), ("b1", 20), ("b2", 30)]
    {
        core.odd.insert(member.to_owned(), json!({ "type": "VLESS", "name": member }));
        core.delays.insert(member.to_owned(), ms);
    }
    core.delays.insert("auto".to_owned(), 20);
    for member in ["b1", "b2"] {
        core.detours.insert(member.to_owned(), "entry".to_owned());
    }
    core
}

impl Gateway {
    /// Builds it, with no policy.
    pub fn new() -> Self {
        let prefix = names::prefix();
        let ground = Ground::new(&prefix, &["gw", "web"].map(str::to_owned));
        let (gw, web) = (Space::new(&prefix, "gw"), Space::new(&prefix, "web"));
        // In memory: what is durable is told from traces, and a disk would only take its time.
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { memory.join(&prefix) } else { ground.folder().to_owned() };
        sweep(memory);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let (mut here, mut there) = ("link set lo up\n".to_owned(), "link set lo up\n".to_owned());
        for (i, name) in DEVICES.iter().enumerate() {
            let peer = web.name();
            here += &format!(
                "link add {name} type veth peer name {name} netns {peer}\n\
                 addr add 10.99.{i}.2/24 dev {name}\nlink set {name} up\n"
            );
            there += &format!("addr add 10.99.{i}.1/24 dev {name}\nlink set {name} up\n");
        }
        here += "route add default via 10.99.0.1 dev eth0\n";
        there += &web::PLACES.map(|place| format!("addr add {place}/32 dev lo\n")).concat();
        gw.sysctls(&[("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0")]);
        gw.batch(&here);
        web.batch(&there);
        for folder in ["bin", "policies", "state"].map(|name| folder.join(name)) {
            fs::create_dir_all(folder).expect("a folder can be made");
        }
        for k in 1..=world::ENDPOINTS {
            let path = folder.join(format!("p{k}.conf"));
            fs::write(&path, &world::known(k).config).expect("a config can be written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
        }
        let program = folder.join("program");
        world::make_program(&program);
        for name in PROGRAMS {
            symlink(&program, folder.join("bin").join(name)).expect("a link");
        }
        let kernel = Shared::serve(&gw, World::bare());
        let core = gw.inside(|| FakeCore::start(first_core()));
        let mut proxies = BTreeMap::new();
        for name in ["primary", "reserve", "local", "uplink"] {
            let (core, kernel) = (core.shared(), kernel.clone());
            let decide = move |_| {
                let failing = kernel.world().failing.clone();
                let selected = core.lock().expect("no thread panicked").now("select");
                let leaf = if selected == "auto" { "a".to_owned() } else { selected };
                let fails = failing.contains(name) || (name == "local" && failing.contains(&leaf));
                if fails { Way::Portal } else { Way::Well }
            };
            proxies.insert(name, gw.inside(|| FakeProxy::deciding(decide)));
        }
        let key = folder.join("tsig.key");
        fs::write(&key, "hmac-sha256:egressctl:c2VjcmV0\n").expect("a key can be written");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("its mode");
        let (zone, nodes) = (zone::serve(&gw, &kernel), Nodes::default());
        let gateway = Self { folder, gw, web, kernel, zone, nodes, core, proxies, _ground: ground };
        gateway.forget_settings();
        web::serve(&gateway.web, &gateway.kernel);
        gateway
    }

    /// What differs from one gateway to another, and what stands for it.
    fn places(&self) -> Vec<(String, String)> {
        let mut places = vec![
            (self.folder.display().to_string(), HOME.to_owned()),
            (self.core.url(), "http://core.invalid".to_owned()),
            (self.zone.to_string(), "zone.invalid".to_owned()),
        ];
        places.extend(
            self.proxies
                .iter()
                .map(|(name, proxy)| (proxy.url(), format!("http://{name}.invalid"))),
        );
        places
    }

    /// A text as it is on this gateway.
    pub fn here(&self, text: &str) -> String {
        self.places()
            .into_iter()
            .fold(text.to_owned(), |text, (here, anywhere)| text.replace(&anywhere, &here))
    }

    /// A text as it is on any.
    fn anywhere(&self, text: &str) -> String {
        self.places()
            .into_iter()
            .fold(text.to_owned(), |text, (here, anywhere)| text.replace(&here, &anywhere))
    }

    /// The core is as it was at first.
    pub fn reset_core(&self) {
        *self.core.core() = first_core();
    }

    /// The core, to be looked at and changed.
    pub fn core(&self) -> std::sync::MutexGuard<'_, Core> {
        self.core.core()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the policy's state.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.join("state").join(POLICY)
    }

    pub fn world(&self) -> World {
        self.kernel.world().clone()
    }

    pub fn set_world(&self, world: &World) {
        self.kernel.world().clone_from(world);
        self.nodes.live(&self.gw, &world.failing);
    }

    /// Writes the policy.
    pub fn set_policy(&self, policy: &Value) {
        let path = self.folder.join("policies").join(format!("{POLICY}.json"));
        fs::write(path, self.here(&policy.to_string())).expect("a policy can be written");
    }

    /// Does some work in the gateway's namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.gw.inside(work)
    }

    /// The command that runs egressctl, behind the words of a tracer.
    pub fn command(&self, tracer: &[String], args: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_egressctl");
        let mut words = tracer.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().expect("there is a program"));
        command
            .args(words)
            .args(args)
            .arg("--policy-dir")
            .arg(self.folder.join("policies"))
            .arg("--state-dir")
            .arg(self.folder.join("state"))
            .env_clear()
            .env("PATH", self.folder.join("bin"))
            .env(PLACE, self.kernel.at().to_string())
            .stdin(Stdio::null());
        command
    }

    /// Runs egressctl to its end, and waits for what it may have left running.
    pub fn traced(&self, tracer: &[String], args: &[&str]) -> Run {
        self.ended(&self.gw.inside(|| self.command(tracer, args).output().expect("it starts")))
    }

    /// Runs egressctl until it is cut off, and waits for what it may have left running.
    pub fn cut_off(&self, cut: &Cut, args: &[&str]) -> Run {
        let no_data = !cut.loss.of_power();
        #[cfg(target_arch = "x86_64")]
        if no_data {
            let command = self.command(&[], args);
            return self.ended(&self.gw.inside(|| crate::tracer::cut_off(&command, cut)));
        }
        let record = self.record();
        self.traced(&cut::tracer(&record, Some(cut)), args)
    }

    /// Where traces lie.
    pub fn record(&self) -> PathBuf {
        self.folder.join("trace")
    }

    fn ended(&self, output: &Output) -> Run {
        let killed = output.status.signal().is_some();
        if killed {
            let over = space::wait_until(Duration::from_secs(10), || self.gw.pids().is_empty());
            assert!(over, "an orphan lives on");
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let run = Run {
            code: output.status.code().filter(|_| !killed),
            out: text(&output.stdout),
            err: text(&output.stderr),
        };
        assert!(!run.err.contains("panicked"), "{run:?}");
        run
    }

    pub fn run(&self, args: &[&str]) -> Run {
        self.traced(&[], args)
    }

    /// One step.
    pub fn step(&self) -> Run {
        self.run(&["step", POLICY, "--json"])
    }

    /// Whether no process is left that a run has started.
    pub fn nobody_runs(&self) -> bool {
        space::wait_until(Duration::from_secs(2), || self.gw.pids().is_empty())
    }

    /// All that is remembered was written so many years later than it was, in another boot.
    pub fn leap(&self, years: i64) {
        let path = self.state_dir().join("state.json");
        let mut state = self.state();
        another_boot(&mut state, years * 31_557_600);
        fs::write(path, state.to_string()).expect("a state can be written");
    }

    /// The state, as far as one is there.
    pub fn state(&self) -> Value {
        let text = fs::read(self.state_dir().join("state.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or(Value::Null)
    }

    /// The lines of history.
    pub fn history(&self) -> Vec<String> {
        let text = fs::read_to_string(self.state_dir().join("history.jsonl")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Lets so much time pass: what was remembered was longer ago.
    pub fn age(&self, sec: i64) {
        let path = self.state_dir().join("state.json");
        let mut state = self.state();
        age(&mut state, sec);
        fs::write(path, state.to_string()).expect("a state can be written");
    }

    /// All that a run would find now.
    pub fn scene(&self) -> Scene {
        let policy = self.folder.join("policies").join(format!("{POLICY}.json"));
        let policy = self.anywhere(&fs::read_to_string(policy).expect("there is a policy"));
        let mut files = BTreeMap::new();
        collect(&self.folder.join("state"), Path::new(""), &mut files);
        for bytes in files.values_mut() {
            *bytes = text_of(bytes, |text| self.anywhere(text));
        }
        let sysctls = self.gw.inside(|| {
            let value = |path: String| {
                let value = fs::read_to_string(format!("/proc/sys/{path}")).expect("a setting");
                (path, value.trim().to_owned())
            };
            settings().map(value).collect()
        });
        let (world, core) = (self.world(), self.core.core().clone());
        Scene { policy, files, world, sysctls, core, taken: Instant::now() }
    }

    /// Puts a scene back.
    pub fn put_back(&self, scene: &Scene) {
        let policy = self.folder.join("policies").join(format!("{POLICY}.json"));
        fs::write(policy, self.here(&scene.policy)).expect("a policy can be written");
        *self.core.core() = scene.core.clone();
        self.put_files(&renewed(&scene.files, scene.taken.elapsed()));
        self.set_world(&scene.world);
        self.gw.inside(|| {
            for (path, value) in &scene.sysctls {
                fs::write(format!("/proc/sys/{path}"), value).expect("a setting can be written");
            }
        });
    }

    /// Gives the settings of the kernel the values that they have after a start.
    pub fn forget_settings(&self) {
        self.gw.inside(|| {
            for path in settings() {
                let value = if path.ends_with("send_redirects") { "1" } else { "0" };
                fs::write(format!("/proc/sys/{path}"), value).expect("a setting can be written");
            }
        });
    }

    /// The files of a scene as they are on this gateway.
    pub fn placed(&self, files: &BTreeMap<PathBuf, Vec<u8>>) -> BTreeMap<PathBuf, Vec<u8>> {
        files
            .iter()
            .map(|(path, bytes)| (path.clone(), text_of(bytes, |text| self.here(text))))
            .collect()
    }

    /// Files of this gateway as they are on any.
    pub fn anywhere_each(&self, all: BTreeMap<Cut, Arc<Kept>>) -> BTreeMap<Cut, Arc<Kept>> {
        let mut made: Vec<(Arc<Kept>, Arc<Kept>)> = Vec::new();
        let mut anywhere = |kept: Arc<Kept>| {
            if let Some((_, known)) = made.iter().find(|(from, _)| Arc::ptr_eq(from, &kept)) {
                return Arc::clone(known);
            }
            let mut files = (*kept).clone();
            for bytes in files.iter_mut().flat_map(BTreeMap::values_mut) {
                *bytes = text_of(bytes, |text| self.anywhere(text));
            }
            let to = Arc::new(files);
            made.push((kept, Arc::clone(&to)));
            to
        };
        all.into_iter().map(|(cut, kept)| (cut, anywhere(kept))).collect()
    }

    /// Makes the state folder hold just these files.
    pub fn put_files(&self, files: &BTreeMap<PathBuf, Vec<u8>>) {
        let states = self.folder.join("state");
        fs::remove_dir_all(&states).expect("it can be removed");
        fs::create_dir(&states).expect("it can be made");
        for (path, bytes) in files {
            let path = states.join(path);
            let folder = path.parent().expect("it has a folder");
            if !folder.exists() {
                fs::create_dir_all(folder).expect("it can be made");
                fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("its mode");
            }
            fs::write(&path, text_of(bytes, |text| self.here(text))).expect("it can be written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
        }
    }

    /// Where the first packet of a new flow of each client goes.
    pub fn exits(&self, layers: Layers) -> Vec<Exit> {
        exits(&self.world(), layers)
    }

    /// What a reader of the state and of the kernel would take for the same, whatever the time is and
    /// whichever of several good endpoints was taken.
    pub fn picture(&self) -> Picture {
        let world = self.world();
        let (mut alive, mut dead) = (Vec::new(), Vec::new());
        for k in 1..=world::ENDPOINTS {
            match world.endpoints.get(&world::endpoint(k).to_string()) {
                Some(world::Health::Alive) => alive.push(k),
                Some(_) => dead.push(k),
                None => {}
            }
        }
        let text = |value: Value| self.anywhere(&canonical(&value, &alive));
        let selected: BTreeMap<String, String> = self
            .core
            .core()
            .groups
            .iter()
            .map(|(name, (_, now))| (name.clone(), now.clone()))
            .collect();
        let state = self.state();
        Picture {
            state: text(state["body"]["machine"].clone()),
            paused: !state["body"]["paused"].is_null(),
            owned: text(state["body"]["owned"].clone()),
            world: text(seen(&world)),
            selected,
            in_flight: self.state_dir().join("journal.json").exists(),
            barrier: fs::read_to_string(self.state_dir().join("barrier.nft")).ok(),
        }
    }
}

/// What is compared between two runs that should have come to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub state: String,
    pub paused: bool,
    pub owned: String,
    pub world: String,
    pub selected: BTreeMap<String, String>,
    pub in_flight: bool,
    pub barrier: Option<String>,
}

/// The kernel without what differs from one making to the next: numbers of devices, and ports.
fn seen(world: &World) -> Value {
    let links: BTreeMap<&String, Value> = world
        .links
        .iter()
        .map(|(name, link)| {
            let mut value = serde_json::to_value(link).expect("it is plain");
            for key in ["index", "port"] {
                value[key] = Value::Null;
            }
            (name, value)
        })
        .collect();
    let mut rules: Vec<String> = world.rules.iter().map(|rule| format!("{rule:?}")).collect();
    rules.sort();
    let nft: BTreeMap<&String, Vec<&str>> = world
        .nft
        .iter()
        .map(|(name, text)| (name, text.lines().map(str::trim).collect()))
        .collect();
    json!({ "links": links, "rules": rules, "routes": world.routes, "nft": nft,
            "hosts": world.zone.hosts })
}

/// Where the first packet of a new flow of each client goes in a world.
pub fn exits(world: &World, layers: Layers) -> Vec<Exit> {
    let table = format!("egressctl_{POLICY}");
    let kernel = egressctl::kernel::World {
        rules: world.rules.iter().cloned().collect(),
        routes: world.routes.iter().cloned().collect(),
        nft: world.nft.get(&table).map(|text| NftTable {
            name: table.clone(),
            text: text.clone(),
            listing: None,
        }),
        ..egressctl::kernel::World::default()
    };
    CLIENTS
        .iter()
        .map(|client| new_flow(&kernel, client.parse().expect("a client"), "eth0", layers))
        .collect()
}

/// The clients of every policy here.
pub const CLIENTS: [&str; 2] = ["10.77.0.11/32", "10.77.0.12/32"];

/// The settings of the kernel that a policy may change.
fn settings() -> impl Iterator<Item = String> {
    let of = |name: &&str| {
        ["rp_filter", "src_valid_mark", "send_redirects"]
            .map(|key| format!("net/ipv4/conf/{name}/{key}"))
    };
    DEVICES.iter().flat_map(of)
}

fn text_of(bytes: &[u8], change: impl FnOnce(&str) -> String) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => change(text).into_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

pub fn collect(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else {
            files.insert(path, fs::read(entry.path()).expect("it can be read"));
        }
    }
}

/// Files in which what is remembered is as long ago as it was so much earlier.
pub fn renewed(files: &BTreeMap<PathBuf, Vec<u8>>, later: Duration) -> BTreeMap<PathBuf, Vec<u8>> {
    let ms = i64::try_from(later.as_millis()).expect("no test lasts for so long");
    let each = |(path, bytes): (&PathBuf, &Vec<u8>)| {
        let name = path.file_name().unwrap_or_default();
        let remembers = ["state.json", "state.json.bak", "journal.json", "trial.json"];
        let value = serde_json::from_slice::<Value>(bytes);
        let Some(mut value) = value.ok().filter(|_| remembers.iter().any(|one| name == *one))
        else {
            return (path.clone(), bytes.clone());
        };
        shift(&mut value, ms);
        (path.clone(), value.to_string().into_bytes())
    };
    files.iter().map(each).collect()
}

/// Moves each moment back by so many seconds.
fn age(value: &mut Value, sec: i64) {
    shift(value, -sec * 1_000);
}

/// Moves each moment on by so many milliseconds.
fn shift(value: &mut Value, ms: i64) {
    match value {
        Value::Object(map) if map.contains_key("up_ms") && map.contains_key("at") => {
            let up = map["up_ms"].as_i64().unwrap_or(0);
            map.insert("up_ms".to_owned(), json!(up + ms));
            let at: jiff::Timestamp = map["at"].as_str().expect("a time").parse().expect("a time");
            let at = at + jiff::SignedDuration::from_millis(ms);
            map.insert("at".to_owned(), json!(at.to_string()));
        }
        Value::Object(map) => map.values_mut().for_each(|value| shift(value, ms)),
        Value::Array(list) => list.iter_mut().for_each(|value| shift(value, ms)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Moves each moment into another boot, and on by so many seconds of the wall clock.
fn another_boot(value: &mut Value, sec: i64) {
    match value {
        Value::Object(map) if map.contains_key("up_ms") && map.contains_key("at") => {
            let at: jiff::Timestamp = map["at"].as_str().expect("a time").parse().expect("a time");
            let at = at + jiff::SignedDuration::from_secs(sec);
            map.insert("at".to_owned(), json!(at.to_string()));
            map.insert("boot".to_owned(), json!("another"));
        }
        Value::Object(map) => map.values_mut().for_each(|value| another_boot(value, sec)),
        Value::Array(list) => list.iter_mut().for_each(|value| another_boot(value, sec)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A value as text in which moments, durations and hashes are all alike, and so are good endpoints.
fn canonical(value: &Value, alive: &[usize]) -> String {
    match value {
        Value::Object(map) if map.contains_key("up_ms") && map.contains_key("at") => "T".to_owned(),
        Value::Object(map) => {
            // Checks that were made are remembered, whatever came of the change that they led to.
            let counts = ["failures", "passes", "retests_failed", "retests_passed", "unknown"];
            let passing = [
                "latency_ms",
                "smoothed_ms",
                "duration_ms",
                "elapsed_ms",
                "listen_port",
                "listing",
                "received",
                "sent",
                "totals",
                "quiet_ms",
                "rate",
                "life",
            ];
            // Told to people until a refresh comes to something, which of two ways back from Direct one may
            // do and the other does not.
            let told = "refresh_failed";
            let mut entries: Vec<String> = map
                .iter()
                .filter(|(key, value)| {
                    key.as_str() != told
                        && !passing.contains(&key.as_str())
                        && !counts.contains(&key.as_str())
                        && !value.is_null()
                })
                .map(|(key, value)| format!("{}: {}", leveled(key, alive), canonical(value, alive)))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(",\n"))
        }
        // Checks count for the half hour that they were made in, and no cut decides when the next begins.
        Value::Array(list) if list.iter().any(|item| item.get("half_hour").is_some()) => {
            let sum = |key: &str| list.iter().filter_map(|item| item[key].as_u64()).sum::<u64>();
            format!("[{} of {}]", sum("passed"), sum("checks"))
        }
        Value::Array(list) => {
            let mut items: Vec<String> = list.iter().map(|item| canonical(item, alive)).collect();
            items.sort();
            format!("[{}]", items.join(",\n"))
        }
        Value::String(text) => leveled(text, alive),
        Value::Null | Value::Bool(_) | Value::Number(_) => leveled(&value.to_string(), alive),
    }
}

fn leveled(text: &str, alive: &[usize]) -> String {
    // Whether a dead tunnel is told by its handshake or by a page is a matter of milliseconds.
    if ["no handshake within", "Peer disconnected"].iter().any(|why| text.contains(why)) {
        return "SILENT".to_owned();
    }
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return "HASH".to_owned();
    }
    let mut text = text.to_owned();
    for k in alive {
        for mark in &world::known(*k).marks {
            if text.contains(mark) {
                text = text.replace(mark, "GOOD");
            }
        }
    }
    text
}
