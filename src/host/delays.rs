//! Lets a proxy core measure its members.
//!
//! **Invariant:** all of a question is over at its deadline; what was not measured by then is
//! unknown.

use super::{clash, clock};
use crate::observation::{Delay, DelayQuestion, DelayReading};
use std::sync::{Mutex, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// So many are measured side by side: as many as the cores themselves take at a time, about.
const PARALLEL: usize = 8;
/// A list of dead members ends here; the step has other things to do.
const DEADLINE: Duration = Duration::from_secs(15);
/// What the core's own answer may take beyond the timeout that it was told.
const SLACK: Duration = Duration::from_secs(1);

/// Asks.
///
/// # Errors
/// When the clock cannot be read.
pub fn ask(question: &DelayQuestion) -> anyhow::Result<DelayReading> {
    let end = Instant::now() + DEADLINE;
    let (core, why) = match clash::reach(&question.core) {
        Ok(core) => (Some(core), "there was no time to measure it".to_owned()),
        Err(fault) => (None, fault.to_string()),
    };
    let unmeasured = || Delay::Unknown(why.clone());
    let mut members: std::collections::BTreeMap<String, Vec<Delay>> = question
        .members
        .iter()
        .map(|member| (member.clone(), question.urls.iter().map(|_| unmeasured()).collect()))
        .collect();
    let work: Vec<(&mut Delay, &str, &crate::url::Target)> = members
        .iter_mut()
        .flat_map(|(member, delays)| {
            delays.iter_mut().zip(&question.urls).map(|(place, url)| (place, member.as_str(), url))
        })
        .collect();
    let provided = OnceLock::new();
    let workers = work.len().min(PARALLEL);
    let queue = Mutex::new(work.into_iter());
    std::thread::scope(|threads| {
        let turn = || {
            loop {
                let next = queue.lock().ok().and_then(|mut queue| queue.next());
                let (Some((place, member, url)), Some(core)) = (next, &core) else { return };
                let left = end.saturating_duration_since(Instant::now());
                let timeout = Duration::from_millis(question.timeout_ms.into());
                if left < timeout {
                    return;
                }
                let (told, timeout) = (question.timeout_ms, timeout + SLACK);
                *place = clash::delay(core, member, url, told, timeout);
                if *place != Delay::Absent {
                    continue;
                }
                // Newer mihomo measures what a provider brought at another place.
                let provided = provided.get_or_init(|| clash::provided(core).unwrap_or_default());
                if let Some(of) = provided.get(member) {
                    *place = clash::provided_delay(core, (member, of), url, told, timeout);
                }
            }
        };
        for _ in 1..workers {
            // With fewer threads it takes longer.
            drop(Builder::new().name("delay".to_owned()).spawn_scoped(threads, turn));
        }
        turn();
    });
    Ok(DelayReading { at: clock::now()?, members })
}
