//! Plays scenes without a cut and with one, and says what is wrong afterwards.
//!
//! **Invariant:** after at most two steps the machine is where a run without a cut would have brought it;
//! until then no client leaves by the uplink who would not have otherwise, and nothing is forgotten.

use crate::cut::{self, Cut, Kept, Loss};
use crate::gateway::{Gateway, Picture, Run, Scene, exits, renewed};
use crate::left::{Fingerprint, fingerprint};
use crate::stories::Cuttable;
use crate::world::{World, load_barrier};
use egressctl::simulate::packet::{Exit, Layers};
use egressctl::time::Moment;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// So much further a run without a cut is followed.
const FURTHER: usize = 2;

/// So many steps more are needed when the machine was started anew: one makes all of it again, and one sees
/// that it answers.
const ANEW: usize = 2;

/// `TimeoutStopSec` of the units.
const STOP: Duration = Duration::from_secs(10);

const ALL_LAYERS: [Layers; 3] = [Layers::Both, Layers::RulesAlone, Layers::NftAlone];

/// A scene, and how it goes when nothing cuts it.
pub struct Known {
    pub name: String,
    scene: Scene,
    args: Vec<String>,
    places: Vec<(&'static str, usize)>,
    /// What may stand at last after a kill.
    kill: Vec<Picture>,
    /// The same after the power went.
    power: Vec<Picture>,
    /// Where packets may go, by layers and client.
    allowed: Vec<Vec<BTreeSet<Exit>>>,
    /// The devices that the run leaves alone, with their numbers.
    kept: Vec<(String, u32)>,
    /// How steps end where nothing is cut.
    codes: BTreeSet<Option<i32>>,
    /// Whether a run that died before had left something in flight.
    in_flight_before: bool,
    patience: usize,
    waits_sec: i64,
    /// What the power leaves of the files at each place, and when they were written; `None`: more than
    /// files outlives it, so that the run is played for each cut.
    left: Option<(BTreeMap<Cut, Arc<Kept>>, Moment)>,
    /// What came of what a cut left, by its fingerprint and whether the power was gone.
    judged: Mutex<BTreeMap<(Fingerprint, bool), Verdict>>,
}

/// What is wrong after a cut.
type Verdict = Result<(), String>;

/// How a cut was judged.
pub struct Judgement {
    /// What is wrong afterwards.
    pub verdict: Verdict,
    /// Whether another cut had left the same, and no step was made to see what comes of it.
    pub is_known: bool,
}

fn clocks() -> Moment {
    egressctl::host::clock::now().expect("there are clocks")
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The power goes, and leaves these files.
fn power_off(gateway: &Gateway, left: &Kept, later: Duration) -> Verdict {
    gateway.put_files(&renewed(left.as_ref().map_err(Clone::clone)?, later));
    reboot(gateway);
    Ok(())
}

/// The machine is started anew: the kernel is bare but for what closes the clients at boot.
fn reboot(gateway: &Gateway) {
    let mut world = gateway.world().rebooted();
    if let Ok(text) = fs::read_to_string(gateway.state_dir().join("barrier.nft")) {
        load_barrier(&mut world, &text);
    }
    gateway.set_world(&world);
    gateway.forget_settings();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("there is a boot");
    let mut files = gateway.scene().files;
    for bytes in files.values_mut() {
        if let Ok(text) = std::str::from_utf8(bytes) {
            let another = "00000000-0000-4000-8000-000000000000";
            *bytes = text.replace(boot.trim(), another).into_bytes();
        }
    }
    gateway.put_files(&files);
}

impl Known {
    /// Plays a scene without a cut.
    pub fn learn(gateway: &Gateway, cuttable: &Cuttable) -> Self {
        let Cuttable { name, scene, args, patience, waits_sec } = cuttable;
        let codes = RefCell::new(BTreeSet::from([Some(0)]));
        let follow = |pictures: &mut Vec<Picture>| {
            for _ in 0..patience + FURTHER {
                codes.borrow_mut().insert(gateway.step().code);
                pictures.push(gateway.picture());
            }
        };
        let is_step = args[0] == "step";
        let mut allowed: Vec<Vec<BTreeSet<Exit>>> = Vec::new();
        let mut allow = |world: &World| {
            for (n, layers) in ALL_LAYERS.into_iter().enumerate() {
                let seen = exits(world, layers);
                if allowed.len() <= n {
                    allowed.push(vec![BTreeSet::new(); seen.len()]);
                }
                for (client, exit) in seen.into_iter().enumerate() {
                    allowed[n][client].insert(exit);
                }
            }
        };
        gateway.put_back(scene);
        let in_flight_before = gateway.picture().in_flight;
        allow(&scene.world);
        let before = gateway.placed(&gateway.scene().files);
        let begun = clocks();
        let whole = gateway.traced(&cut::tracer(&gateway.record(), None), &words(args));
        assert!(whole.code.is_some(), "{name}: {whole:?}");
        codes.borrow_mut().insert(whole.code);
        let trace = fs::read_to_string(gateway.record()).expect("there is a trace");
        let places = cut::places(&trace);
        let outlives = ["core.invalid", "\"dns\""].iter().any(|word| scene.policy.contains(word));
        let left = (!outlives).then(|| {
            let root = gateway.folder().join("state");
            (cut::after_each_power_loss(&root, &before, &trace), begun)
        });
        let left = left.map(|(left, begun)| (gateway.anywhere_each(left), begun));
        let after = gateway.world();
        allow(&after);
        let mut kill = vec![gateway.picture()];
        follow(&mut kill);
        let last = gateway.world();
        let kept = scene
            .world
            .links
            .iter()
            .filter(|(name, link)| {
                let same = |world: &World| {
                    world
                        .links
                        .get(*name)
                        .is_some_and(|later| later.index == link.index && later.peer == link.peer)
                };
                same(&after) && same(&last)
            })
            .map(|(name, link)| (name.clone(), link.index))
            .collect();
        // Whoever is cut while it does what a person asked for has done it, or has not.
        gateway.put_back(scene);
        if is_step {
            reboot(gateway);
        }
        let mut power = Vec::new();
        follow(if is_step { &mut power } else { &mut kill });
        if !is_step {
            gateway.put_back(scene);
            kill.push(gateway.picture());
            follow(&mut kill);
            gateway.put_back(scene);
            reboot(gateway);
            follow(&mut power);
        }
        gateway.put_back(scene);
        gateway.run(&words(args));
        reboot(gateway);
        follow(&mut power);
        Self {
            name: name.clone(),
            scene: scene.clone(),
            args: args.clone(),
            places,
            kill,
            power,
            allowed,
            kept,
            codes: codes.into_inner(),
            in_flight_before,
            patience: *patience,
            waits_sec: *waits_sec,
            left,
            judged: Mutex::default(),
        }
    }

    /// All cuts of this scene.
    pub fn cuts(&self) -> Vec<Cut> {
        let kills = self.places.iter().map(|(call, nth)| Cut { call, nth: *nth, loss: Loss::Kill });
        // Between two kills that differ by what is durable there is always one of these calls.
        let durable = [
            "fsync",
            "fdatasync",
            "rename",
            "renameat",
            "renameat2",
            "unlink",
            "unlinkat",
            "link",
            "linkat",
            "mkdir",
            "mkdirat",
            "clone3",
            "clone",
            "vfork",
        ];
        let powers = self.places.iter().filter(|(call, _)| durable.contains(call)).flat_map(
            |(call, nth)| [Loss::Nothing, Loss::Names].map(|loss| Cut { call, nth: *nth, loss }),
        );
        let stops = self
            .places
            .iter()
            .filter(|(call, _)| durable.contains(call))
            .map(|(call, nth)| Cut { call, nth: *nth, loss: Loss::Stop });
        kills.chain(powers).chain(stops).collect()
    }

    /// Cuts the scene once, and judges what is left and what steps make of it.
    pub fn cut(&self, gateway: &Gateway, cut: &Cut) -> Judgement {
        gateway.put_back(&self.scene);
        let history = gateway.history();
        let left =
            self.left.as_ref().and_then(|(left, begun)| Some((left.get(cut)?, begun.clone())));
        let now = clocks();
        let off = if let Some((left, begun)) = left {
            power_off(gateway, left, now.since(&begun))
        } else {
            self.cut_off(gateway, cut)
        };
        if let Err(why) = off {
            return Judgement { verdict: Err(why), is_known: false };
        }
        let key = (fingerprint(&gateway.scene(), &now), cut.loss.of_power());
        let known = self.judged.lock().expect("no thread panicked").get(&key).cloned();
        let is_known = known.is_some();
        let verdict = known.unwrap_or_else(|| self.goes_on(gateway, cut, &history));
        self.judged.lock().expect("no thread panicked").insert(key, verdict.clone());
        Judgement { verdict, is_known }
    }

    /// Plays the run and cuts it off.
    fn cut_off(&self, gateway: &Gateway, cut: &Cut) -> Result<(), String> {
        let before = cut.loss.of_power().then(|| gateway.placed(&gateway.scene().files));
        let begun = Instant::now();
        let ended = gateway.cut_off(cut, &words(&self.args));
        if cut.loss == Loss::Stop {
            self.ended_by_itself(gateway, &ended, begun.elapsed())?;
        }
        if let Some(before) = before {
            let root = gateway.folder().join("state");
            let trace = fs::read_to_string(gateway.record()).map_err(|why| why.to_string())?;
            let left = cut::after_power_loss(&root, &before, &trace, cut.loss)?;
            gateway.put_files(&left);
            reboot(gateway);
        }
        Ok(())
    }

    /// Makes steps until all is as it would have been.
    fn goes_on(&self, gateway: &Gateway, cut: &Cut, history: &[String]) -> Result<(), String> {
        let wished = if cut.loss.of_power() { &self.power } else { &self.kill };
        // After a start only the table that closes the clients is there, and no rule.
        let layers = if cut.loss.of_power() { &ALL_LAYERS[..1] } else { &ALL_LAYERS[..] };
        self.nothing_leaks(&gateway.world(), layers, "after the cut")?;
        let mut told = Vec::new();
        let most = self.patience + if cut.loss.of_power() { ANEW } else { 0 };
        let further = usize::from(self.waits_sec > 0) * 2;
        for n in 1..=most + further {
            if n == most + 1 {
                gateway.age(self.waits_sec);
            }
            let run = gateway.step();
            told.push(format!("{:?} {}", run.code, run.out.trim()));
            self.fine(&run, n).map_err(|why| format!("{why}: {told:#?}"))?;
            self.nothing_leaks(&gateway.world(), layers, "after a step")?;
            let picture = gateway.picture();
            if wished.contains(&picture) {
                return self
                    .nothing_is_lost(gateway, cut, history)
                    .map_err(|why| format!("{why}: {told:#?}"));
            }
        }
        let picture = gateway.picture();
        let nearest = wished.iter().min_by_key(|wished| differences(wished, &picture).len());
        let differences = nearest.map(|nearest| differences(nearest, &picture)).unwrap_or_default();
        Err(format!("{told:#?}\nit is not where it would have been:\n{}", differences.join("\n")))
    }

    /// Whoever was told to end has finished what was in flight, or undone it, when the unit's time is over.
    fn ended_by_itself(&self, gateway: &Gateway, run: &Run, took: Duration) -> Result<(), String> {
        if gateway.picture().in_flight && !self.in_flight_before {
            return Err(format!("something is in flight after it was told to end: {run:?}"));
        }
        if took > STOP { Err(format!("it took {took:?} to end")) } else { Ok(()) }
    }

    /// A step after a cut does its work or undoes, in one line.
    fn fine(&self, run: &Run, n: usize) -> Result<(), String> {
        if !(self.codes.contains(&run.code) || run.code == Some(5) && n == 1) {
            return Err(format!("step {n} ended with {:?} {}", run.code, run.err));
        }
        if run.out.lines().count() == 1 {
            Ok(())
        } else {
            Err("it said more than a line".to_owned())
        }
    }

    fn nothing_leaks(&self, world: &World, layers: &[Layers], when: &str) -> Result<(), String> {
        // Whoever has no clients lets nobody out.
        let layers = if self.scene.policy.contains("\"clients\"") { layers } else { &[] };
        for (n, layers) in layers.iter().enumerate() {
            for (client, exit) in exits(world, *layers).iter().enumerate() {
                if *exit == Exit::Wan && !self.allowed[n][client].contains(exit) {
                    return Err(format!(
                        "client {client} leaves by the uplink {when} ({layers:?})"
                    ));
                }
            }
        }
        Ok(())
    }

    fn nothing_is_lost(
        &self,
        gateway: &Gateway,
        cut: &Cut,
        history: &[String],
    ) -> Result<(), String> {
        let now = gateway.history();
        if let Some(lost) = history.iter().find(|line| !now.contains(line)) {
            return Err(format!("a line of history is gone: {lost}"));
        }
        let world = gateway.world();
        if !cut.loss.of_power()
            && let Some((name, _)) = self
                .kept
                .iter()
                .find(|(name, index)| world.links.get(name).is_none_or(|link| link.index != *index))
        {
            return Err(format!("{name} worked and was made anew"));
        }
        let left: Vec<PathBuf> = gateway
            .scene()
            .files
            .into_keys()
            .filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(".egressctl-"))
            })
            .collect();
        // While there is no state, such a file may be all that there is of it.
        let had_state = self.scene.files.keys().any(|path| path.ends_with("state.json"));
        if left.is_empty() || !had_state { Ok(()) } else { Err(format!("{left:?} are left over")) }
    }
}

/// The lines that only one of two pictures has.
fn differences(wished: &Picture, found: &Picture) -> Vec<String> {
    let (wished, found) = (format!("{wished:#?}"), format!("{found:#?}"));
    let (wished, found) = (wished.replace("\\n", "\n"), found.replace("\\n", "\n"));
    let only = |mark: &str, of: &str, other: &str| -> Vec<String> {
        let other: BTreeSet<&str> = other.lines().collect();
        of.lines()
            .filter(|line| !other.contains(line))
            .map(|line| format!("{mark} {line}"))
            .collect()
    };
    [only("-", &wished, &found), only("+", &found, &wished)].concat()
}
