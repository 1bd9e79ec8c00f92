//! What of a selector is measured.
//!
//! **Invariant:** a value is one of the status; what is not known has no sample.

use super::SelectorStatus;
use crate::measure::{Family, Samples, Value};
use crate::selector::state::Verdict;

impl SelectorStatus {
    /// The selector's metrics.
    #[must_use]
    pub fn measured(&self) -> Samples {
        let mut samples = Samples::of(&self.head, self.standing, true);
        if self.head.state.is_none() {
            return samples;
        }
        for row in &self.channels {
            let labels = [("channel", row.channel.as_str()), ("member", &row.member)];
            let passes = match row.health {
                Verdict::Healthy => Some(true),
                Verdict::Unhealthy => Some(false),
                Verdict::Unknown => None,
            };
            samples.set_if(Family::ChannelUp, &labels, passes);
            samples.set(Family::ChannelSelected, &labels, row.selected);
            let failing = Value::millis(row.failing_sec.saturating_mul(1_000));
            samples.set(Family::ChannelFailing, &labels, failing);
            samples.set_if(Family::ChannelLatency, &labels, row.latency_ms.map(Value::millis));
        }
        samples.set_if(Family::Received, &[], self.received_per_sec);
        samples.set(Family::Failovers, &[], self.failovers);
        samples
    }
}
