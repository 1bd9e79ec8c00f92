//! The ids of zones that were looked up, so that a zone is looked up once a run, however many host
//! names it holds: a move is a request shorter, and a provider that counts requests counts fewer.
//!
//! **Invariant:** nothing outlives the run. Who waited for a look-up takes what came of it, also where
//! that is nothing, so that a provider that is silent is waited for once.

use crate::host::setting::Refusal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Where the API is, the zone's name, and whose token asks.
pub(super) type Key = (String, String, PathBuf);

/// What came of a look-up.
struct Outcome {
    at: Instant,
    id: Result<String, Refusal>,
}

static KNOWN: Mutex<BTreeMap<Key, Arc<Mutex<Option<Outcome>>>>> = Mutex::new(BTreeMap::new());

/// The id of a zone, by `look_up` where it is not known yet.
pub(super) fn id_of(
    key: Key,
    look_up: impl FnOnce() -> Result<String, Refusal>,
) -> Result<String, Refusal> {
    let asked = Instant::now();
    let Ok(place) = KNOWN.lock().map(|mut known| Arc::clone(known.entry(key).or_default())) else {
        return look_up();
    };
    let Ok(mut known) = place.lock() else { return look_up() };
    if let Some(outcome) = known.as_ref().filter(|known| known.id.is_ok() || known.at >= asked) {
        return outcome.id.clone();
    }
    let id = look_up();
    *known = Some(Outcome { at: Instant::now(), id: id.clone() });
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// How often a zone of this name is looked up where eight ask at the same time, and what they get.
    fn eight(name: &str, found: &Result<String, Refusal>) -> (usize, Vec<Result<String, String>>) {
        let (asked, there) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = || {
            let key = ("api".to_owned(), name.to_owned(), PathBuf::from("/t"));
            there.fetch_add(1, Ordering::SeqCst);
            let id = id_of(key, || {
                asked.fetch_add(1, Ordering::SeqCst);
                while there.load(Ordering::SeqCst) < 8 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(200));
                found.clone()
            });
            id.map_err(|refusal| refusal.why)
        };
        let all = std::thread::scope(|threads| {
            let started: Vec<_> = (0..8).map(|_| threads.spawn(one)).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (asked.into_inner(), all)
    }

    #[test]
    fn a_zone_is_looked_up_once_and_found_by_all() {
        let found = Ok("1a".to_owned());
        assert_eq!(eight("a.example", &found), (1, vec![Ok("1a".to_owned()); 8]));
        assert_eq!(eight("a.example", &found).0, 0, "it is known");
        assert_eq!(eight("b.example", &found).0, 1, "that is another one");
    }

    #[test]
    fn a_failure_is_everybodys_who_waited_and_nobody_elses() {
        let silent = Err(Refusal::new("silent".to_owned()));
        assert_eq!(eight("c.example", &silent), (1, vec![Err("silent".to_owned()); 8]));
        assert_eq!(eight("c.example", &silent).0, 1, "it is tried again later");
    }
}
