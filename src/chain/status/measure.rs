//! What of a chain is measured.
//!
//! **Invariant:** a value is one of the status; the whole path, a hop and a node's own leg are told
//! apart, and what is not known has no sample.

use super::{ChainStatus, Health, HopRow};
use crate::measure::{Family, Samples, Value};

impl ChainStatus {
    /// The chain's metrics.
    #[must_use]
    pub fn measured(&self) -> Samples {
        let mut samples = Samples::of(&self.head, self.standing, false);
        samples.set_if(Family::PathUp, &[], passes(self.path.health));
        samples.set_if(Family::PathLatency, &[], self.path.latency_ms.map(Value::millis));
        for row in &self.hops {
            hop(&mut samples, row);
        }
        samples
    }
}

fn passes(health: Health) -> Option<bool> {
    match health {
        Health::Healthy => Some(true),
        Health::Failed => Some(false),
        Health::Unknown => None,
    }
}

fn hop(samples: &mut Samples, row: &HopRow) {
    let Some(state) = row.state else { return };
    let name = row.hop.as_str();
    samples.set(Family::HopState, &[("hop", name), ("state", state.as_str())], true);
    let labels = [("hop", name)];
    samples.set_if(Family::HopSince, &labels, row.since);
    samples.set(Family::HopPreferred, &labels, row.node.is_some() && row.node == row.preferred);
    samples.set(Family::HopPaused, &labels, row.paused.is_some());
    for node in &row.nodes {
        let labels = [("hop", name), ("node", node.node.as_str())];
        samples.set(Family::HopNodeCarries, &labels, node.carries);
        samples.set_if(Family::HopNodeUp, &labels, passes(node.health));
        samples.set_if(Family::HopNodeLatency, &labels, node.latency_ms.map(Value::millis));
        samples.set(Family::HopNodeMarked, &labels, node.marked_until.is_some());
    }
}
