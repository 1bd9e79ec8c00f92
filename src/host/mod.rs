//! The imperative shell: the only place that reads clocks, files, processes and sockets.
//!
//! **Invariant:** nothing here decides; it is told what to look at and what to change, and reports
//! what it saw and what came true.
#![expect(clippy::disallowed_methods, reason = "this is the imperative shell")]

pub mod apply;
pub mod carried;
pub mod clash;
pub mod clock;
pub mod core;
pub mod cut;
pub mod delays;
pub mod discover;
pub mod dns;
pub mod environment;
pub mod examine;
pub mod exec;
pub mod files;
pub mod gost;
pub mod http;
pub mod journal;
pub mod look;
pub mod node;
pub mod notify;
pub mod observe;
pub mod pages;
pub mod policies;
pub mod provider;
pub mod publish;
pub mod resolve;
mod retry_after;
pub mod rights;
pub mod secret;
pub mod secrets;
pub mod setting;
pub mod stop;
pub mod store;
pub mod terminal;
pub mod trial;
pub mod users;
pub mod waiter;

/// Does the same for each item, side by side, and gives the results in their order. A single one is
/// done without a thread, whose own arena of `malloc` took 80 calls of `mprotect` in a step.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if let [item] = items {
        return vec![work(item)];
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
