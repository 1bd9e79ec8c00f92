//! Whether this process was told to end, and what has to be ended first.
//!
//! A process that has nothing in flight ends at once, as any other does. One that is in the middle of
//! a change hears of it, and finishes or undoes what it began: a service that is stopped leaves no
//! half change until its next start.
//!
//! **Invariant:** a signal is never lost; it ends the process, or it is there to be asked for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What ends a process: its service, its terminal, the session that it was started from.
const SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

struct Stop {
    asked: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
    held: Mutex<usize>,
}

static STOP: OnceLock<Stop> = OnceLock::new();

/// As long as this lives, the process is not ended by a signal but told of it.
pub struct Hold(());

/// Something begins that has to be ended first.
///
/// # Errors
/// When the kernel lets nobody hear of signals.
pub fn hold() -> anyhow::Result<Hold> {
    let stop = if let Some(stop) = STOP.get() {
        stop
    } else {
        let made = Stop::new()?;
        STOP.get_or_init(|| made)
    };
    let mut held = stop.held.lock().unwrap_or_else(PoisonError::into_inner);
    *held = held.saturating_add(1);
    stop.at_once.store(false, Ordering::SeqCst);
    Ok(Hold(()))
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(stop) = STOP.get() else { return };
        let mut held = stop.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = held.saturating_sub(1);
        stop.at_once.store(*held == 0, Ordering::SeqCst);
    }
}

/// Whether this process was told to end while something was in flight.
#[must_use]
pub fn is_asked() -> bool {
    STOP.get().is_some_and(|stop| stop.asked.load(Ordering::SeqCst))
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        let stop = Self {
            asked: Arc::default(),
            at_once: Arc::new(AtomicBool::new(true)),
            held: Mutex::new(0),
        };
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::clone(&stop.at_once))?;
            flag::register(signal, Arc::clone(&stop.asked))?;
        }
        Ok(stop)
    }
}
