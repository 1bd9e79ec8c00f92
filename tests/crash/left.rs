//! What a cut leaves behind, as a fingerprint: what two cuts leave alike is judged once.
//!
//! **Invariant:** two fingerprints are the same only if all files, the kernel and the core are, apart from
//! the time at which the run wrote something down, and how long it or an answer took.

use crate::gateway::Scene;
use egressctl::time::Moment;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// It is as good as the thing itself.
pub type Fingerprint = [u8; 32];

/// Of a scene that a run left which began at `begun`.
pub fn fingerprint(scene: &Scene, begun: &Moment) -> Fingerprint {
    let mut text = String::new();
    for (path, bytes) in &scene.files {
        let path = path.display().to_string();
        // What is half written has a name by lot.
        let path = path.split_once(".egressctl-").map_or(path.as_str(), |(folder, _)| folder);
        let lines: Option<Vec<Value>> = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.lines().map(|line| serde_json::from_str(line).ok()).collect());
        match lines {
            // An end of a line that is missing is a difference, too.
            Some(mut lines) => {
                for line in &mut lines {
                    level(line, begun);
                }
                let end = bytes.last() == Some(&b'\n');
                writeln!(text, "{path}: {lines:?} {end}").expect("a text grows");
            }
            None => writeln!(text, "{path}: {bytes:?}").expect("a text grows"),
        }
    }
    let (mut world, mut core) = (scene.world.clone(), scene.core.clone());
    world.calls = 0;
    core.asked.clear();
    write!(text, "{world:?}\n{:?}\n{core:?}\n{}", scene.sysctls, scene.policy)
        .expect("a text grows");
    Sha256::digest(text).into()
}

/// Makes all alike that differs from one run to the next because time passes.
fn level(value: &mut Value, begun: &Moment) {
    match value {
        Value::Object(map) if map.contains_key("up_ms") && map.contains_key("at") => {
            // How long ago it was stays the same whenever a scene is put back.
            let ago = map["up_ms"].as_i64().map(|up| (begun.up_ms - up + 500).div_euclid(1_000));
            *value = match ago {
                Some(ago) if ago > 0 => format!("{ago} s AGO in {}", map["boot"]).into(),
                Some(_) | None => "NOW".into(),
            };
        }
        Value::Object(map) => {
            for key in ["latency_ms", "smoothed_ms", "duration_ms", "elapsed_ms"] {
                if map.get(key).is_some_and(Value::is_number) {
                    map.insert(key.to_owned(), "LONG".into());
                }
            }
            map.values_mut().for_each(|value| level(value, begun));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| level(value, begun)),
        Value::String(text) => {
            // Whole seconds are all that some of them hold.
            if text.parse::<Timestamp>().is_ok_and(|at| at.as_second() >= begun.at.as_second()) {
                *value = "NOW".into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
