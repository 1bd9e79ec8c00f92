//! HideMyName.
//!
//! **Invariant:** its paths and sites are configuration, for they change.

use super::remote::{remote_source, targets};
use crate::url::Target;
use std::path::PathBuf;

remote_source! {
    /// HideMyName: a list of servers, and a configuration for each that is asked for.
    HideMyName, default timeout "hide_my_name_timeout",
    /// A file with the access code.
    code_file: PathBuf,
    /// The sites, tried in order.
    #[serde(default = "hide_my_name_sites")]
    urls: Vec<Target>,
    /// The path of the list on them.
    #[serde(default = "hide_my_name_list")]
    list_path: String,
    /// The path of the configurations on them.
    #[serde(default = "hide_my_name_config")]
    config_path: String,
    /// Which protocol is asked for: 0 is WireGuard, 1 and 4 are AmneziaWG 1.0 and 2.0.
    #[serde(default)]
    awg: u8,
    /// How long to wait between two requests for a configuration.
    #[serde(default = "hide_my_name_pause")]
    pause_ms: u64,
    /// So many configurations are asked for in one refresh; the next goes on.
    #[serde(default = "hide_my_name_batch")]
    batch: usize,
}

/// The sites that clients of the service were seen to use; they change.
fn hide_my_name_sites() -> Vec<Target> {
    targets(&["https://hide-my-name.cloud", "https://hide-my-name.net", "https://hidethis.app"])
}

fn hide_my_name_list() -> String {
    "/api/serverlist.php?out=js&wg".to_owned()
}

fn hide_my_name_config() -> String {
    "/api/vpn_get_config_wg.php".to_owned()
}

/// What a known client waits.
fn hide_my_name_pause() -> u64 {
    1_000
}

/// As many as are tested by default, and with the pauses they fit into a step.
fn hide_my_name_batch() -> usize {
    20
}

/// The list and a batch with its pauses, within a step's default of 60 s.
fn hide_my_name_timeout() -> u64 {
    45
}
