//! What of a guard is measured.
//!
//! **Invariant:** a value is one of the status; what the core says and what a request showed are two
//! metrics, and what is not known has no sample.

use super::GuardStatus;
use crate::measure::{Family, Samples, Value};
use crate::proxy::Verdict;

impl GuardStatus {
    /// The guard's metrics.
    #[must_use]
    pub fn measured(&self) -> Samples {
        let mut samples = Samples::of(&self.head, self.standing, true);
        if self.head.state.is_none() {
            return samples;
        }
        samples.set(Family::CoreUp, &[], self.core_trouble.is_none());
        samples.set(Family::FailedRounds, &[], self.failed_rounds);
        for row in &self.members {
            let labels = [("member", row.member.as_str())];
            samples.set(Family::MemberSelected, &labels, row.selected);
            if let Some(request) = &row.request {
                let passed = match request.health {
                    Verdict::Passed => Some(true),
                    Verdict::Failed => Some(false),
                    Verdict::Unknown => None,
                };
                samples.set_if(Family::MemberUp, &labels, passed);
                let latency = request.latency_ms.map(Value::millis);
                samples.set_if(Family::MemberLatency, &labels, latency);
            }
            let delay = row.core.as_ref().and_then(|core| core.delay_ms);
            samples.set_if(Family::MemberDelay, &labels, delay.map(Value::millis));
        }
        samples
    }
}
