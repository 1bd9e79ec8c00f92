//! What of host names and nodes is measured.
//!
//! **Invariant:** a value is one of the status; what is not known has no sample.

use super::{DnsStatus, HostRow, NodeHealth, NodeRow};
use crate::measure::{Family, Samples, Value};

impl DnsStatus {
    /// The metrics of host names and nodes.
    #[must_use]
    pub fn measured(&self) -> Samples {
        let mut samples = Samples::of(&self.head, self.standing, false);
        for row in &self.hosts {
            host(&mut samples, row);
        }
        for row in &self.nodes {
            node(&mut samples, row);
        }
        samples
    }
}

fn host(samples: &mut Samples, row: &HostRow) {
    let Some(state) = row.state else { return };
    let name = row.host.as_str();
    samples.set(Family::HostState, &[("host", name), ("state", state.as_str())], true);
    let labels = [("host", name)];
    samples.set_if(Family::HostSince, &labels, row.since);
    samples.set(Family::HostAtNative, &labels, row.nodes.contains(&row.native));
    samples.set(Family::HostPaused, &labels, row.paused.is_some());
    samples.set(Family::HostMoves, &labels, row.moves);
}

fn node(samples: &mut Samples, row: &NodeRow) {
    let labels = [("node", row.node.as_str())];
    let is_up = match row.health {
        NodeHealth::Healthy => Some(true),
        NodeHealth::Failed => Some(false),
        NodeHealth::Unknown => None,
    };
    samples.set_if(Family::NodeUp, &labels, is_up);
    samples.set(Family::NodeFailures, &labels, row.failures);
    samples.set_if(Family::NodeLatency, &labels, row.latency_ms.map(Value::millis));
    let share = row.uptime_percent.map(|percent| Value::Ratio(percent / 100.0));
    samples.set_if(Family::NodeUptime, &labels, share);
}
