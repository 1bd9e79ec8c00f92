//! The imperative shell: the only place that reads clocks, files, processes and sockets.
//!
//! **Invariant:** nothing here decides; it is told what to look at and what to change, and reports
//! what it saw and what came true.
#![expect(clippy::disallowed_methods, reason = "this is the imperative shell")]

pub mod apply;
pub mod clock;
pub mod cut;
pub mod exec;
pub mod files;
pub mod http;
pub mod look;
pub mod observe;
pub mod pages;
pub mod provider;
pub mod resolve;
pub mod rights;
pub mod store;
pub mod trial;
pub mod users;
