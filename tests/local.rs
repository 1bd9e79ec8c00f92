//! All tests that need no network but loopback. One program, because each would link everything anew;
//! `tests/run` runs its files beside each other.
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

mod chain_world;
mod dns_bench;
mod dns_world;
mod edges;
mod every_kind;
mod fake_core;
mod fake_gost;
mod guard_world;
mod host_hands_space;
#[path = "real_core/measure.rs"]
mod measure;
#[path = "fuzz/mutate.rs"]
mod mutate;
mod page_world;
mod provider_server;
#[path = "fakes/ran.rs"]
mod ran;
mod selector_world;
#[path = "trial/states.rs"]
mod states;
#[path = "fuzz/targets.rs"]
mod targets;
mod walk;
mod world;

mod bootstrap;
mod cases;
mod chain_decisions;
mod chain_gost;
mod chain_laws;
mod chain_policy;
mod chain_sing_box;
mod chain_steps;
mod chain_tunnels;
mod claims;
mod clash_driver;
mod clocks;
mod clocks_of_kinds;
mod completions;
mod decisions;
mod dns_check;
mod dns_cloudflare;
mod dns_decisions;
mod dns_laws;
mod dns_nodes;
mod dns_rfc2136;
mod docs;
mod graph;
mod guard_decisions;
mod guard_discovery;
mod guard_laws;
mod guard_policy;
mod guard_sing_box;
mod guard_steps;
mod host_exec;
mod host_files;
mod host_hands;
mod host_hands_pages;
mod host_hands_provider;
mod host_hands_trial;
mod host_http;
mod host_resolve;
mod host_store;
mod laws;
mod metrics;
mod nft_rules;
mod notify;
mod page;
mod parsers;
mod policies;
mod pool_confirm;
mod pool_keys;
mod pool_lost;
mod pool_situations;
mod providers;
mod providers_hidemyname;
mod providers_policy;
mod providers_services;
mod publish;
mod record;
mod replay;
mod schema;
mod selector_decisions;
mod selector_laws;
mod selector_policy;
mod selector_route_laws;
mod selector_steps;
mod shown;
mod simulate;
mod standby;
mod status;
mod systemd;
mod world_changes;
