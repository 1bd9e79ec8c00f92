//! What runs beside us: systemd with our units, networkd, NetworkManager.
//!
//! **Invariant:** a service is taken to run by what it keeps below `/run`, without asking its bus.

use super::text;
use crate::check::services::{Services, parse_units};
use crate::host::exec::{self, Call};
use crate::names::PolicyName;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// systemd answers in milliseconds, also while it boots.
const DEADLINE: Duration = Duration::from_secs(5);

/// Folders of settings, the weakest first.
const PLACES: [&str; 3] = ["/usr/lib", "/run", "/etc"];

pub(super) fn services(policies: &[PolicyName]) -> Services {
    let runs = |path: &str| Path::new(path).exists();
    let networkd = || {
        let mut settings = vec![text("/etc/systemd/networkd.conf")];
        settings.extend(drop_ins("systemd/networkd.conf.d"));
        settings
    };
    let network_manager = || {
        let mut settings = vec![text("/etc/NetworkManager/NetworkManager.conf")];
        settings.extend(drop_ins("NetworkManager/conf.d"));
        settings
    };
    Services {
        units: runs("/run/systemd/system").then(|| units(policies)).flatten(),
        networkd: runs("/run/systemd/netif/links").then(networkd),
        network_manager: runs("/run/NetworkManager").then(network_manager),
    }
}

/// Our units as systemd has them; `None`: it does not answer.
fn units(
    policies: &[PolicyName],
) -> Option<std::collections::BTreeMap<String, crate::check::services::Unit>> {
    let mut names = vec!["egressctl.timer".to_owned(), "egressctl-barrier.service".to_owned()];
    names.extend(policies.iter().map(|policy| format!("egressctl@{policy}.timer")));
    let mut arguments =
        vec!["show", "--property=Id,LoadState,UnitFileState,ActiveState,TimersMonotonic", "--"];
    arguments.extend(names.iter().map(String::as_str));
    let output = exec::run(&Call::new("systemctl", &arguments, DEADLINE)).ok()?;
    Some(parse_units(&String::from_utf8_lossy(&output.stdout)))
}

/// Settings in further files, in the order of their names whatever folder they are in.
fn drop_ins(folder: &str) -> Vec<String> {
    let mut files: Vec<PathBuf> = PLACES
        .iter()
        .flat_map(|place| std::fs::read_dir(Path::new(place).join(folder)).into_iter().flatten())
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "conf"))
        .collect();
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    files.iter().map(|path| text(&path.display().to_string())).collect()
}
