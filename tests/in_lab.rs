//! All tests that make networks. One program, because each would link everything anew;
//! `tests/run` runs its files one after the other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::format_push_string,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    missing_docs,
    reason = "test code"
)]

mod dns_bench;
mod fake_core;
mod fake_gost;
mod fakes;
mod lab;
mod provider_server;
mod real_core;
#[path = "trial/states.rs"]
mod states;
#[path = "fakes/told.rs"]
mod told;

mod bad_input;
mod bad_machine;
mod bad_state;
mod chain_lab;
mod check;
mod deb;
mod dns_lab;
mod full_trial;
mod init;
mod init_selector;
mod lab_itself;
mod on_trial;
mod plan;
mod policy_invalid;
mod pool_crash;
mod pool_cut;
mod pool_direct;
mod pool_drift;
mod pool_edited;
mod pool_faults;
mod pool_killed;
mod pool_layout;
mod pool_leaks;
mod pool_params;
mod pool_six;
mod pool_standby;
mod pool_story;
mod pool_uplink;
mod pool_wan;
mod providers_hostile;
mod secrets;
mod selector_lab;
mod selector_route_lab;
mod terminal;
mod two_gateways;
mod userspace_units;
mod watchers;
