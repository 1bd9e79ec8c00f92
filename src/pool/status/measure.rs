//! What of a pool is measured.
//!
//! **Invariant:** a value is one of the status; what is not known has no sample.

use super::{PoolStatus, SlotHealth, SlotRow, StandbyHealth, StandbyRow};
use crate::measure::{Family, Samples, Value};

impl PoolStatus {
    /// The pool's metrics.
    #[must_use]
    pub fn measured(&self) -> Samples {
        let mut samples = Samples::of(&self.head, self.standing, true);
        if self.head.state.is_none() {
            return samples;
        }
        let on = |wanted: fn(&str) -> bool| {
            self.clients.iter().filter(|row| wanted(&row.egress)).count()
        };
        for (egress, count) in [
            ("slot", on(|egress| egress != "direct" && egress != "none")),
            ("direct", on(|egress| egress == "direct")),
            ("none", on(|egress| egress == "none")),
        ] {
            samples.set(Family::Clients, &[("egress", egress)], count);
        }
        if let Some(pool) = &self.pool {
            samples.set(Family::Generation, &[], pool.generation);
            samples.set(Family::Reserve, &[], pool.reserve);
            samples.set(Family::Quarantined, &[], pool.quarantined);
            samples.set(Family::FetchedAt, &[], pool.fetched_at);
        }
        samples.set(Family::Repairs, &[], self.repair_events_since_full_refresh);
        for row in &self.slots {
            slot(&mut samples, row);
        }
        if let Some(row) = &self.standby {
            standby(&mut samples, row);
        }
        samples
    }
}

fn slot(samples: &mut Samples, row: &SlotRow) {
    let labels = [("slot", row.interface.as_str())];
    let serves = match row.health {
        SlotHealth::Healthy => Some(true),
        SlotHealth::Failed | SlotHealth::Empty | SlotHealth::Lent => Some(false),
        SlotHealth::Unknown => None,
    };
    samples.set_if(Family::SlotUp, &labels, serves);
    if let Some(endpoint) = &row.endpoint {
        let labels = [("slot", row.interface.as_str()), ("endpoint", endpoint)];
        samples.set(Family::SlotInfo, &labels, true);
    }
    samples.set(Family::SlotClients, &labels, row.clients);
    samples.set(Family::SlotFailures, &labels, row.failures);
    samples.set_if(Family::SlotLatency, &labels, row.latency_ms.map(Value::millis));
    samples.set(Family::SlotSince, &labels, row.since);
}

fn standby(samples: &mut Samples, row: &StandbyRow) {
    let labels = [("interface", row.interface.as_str())];
    let carries = match row.health {
        StandbyHealth::Healthy => Some(true),
        StandbyHealth::Failed => Some(false),
        StandbyHealth::Unknown | StandbyHealth::Down => None,
    };
    samples.set_if(Family::StandbyUp, &labels, carries);
    samples.set_if(Family::StandbyLatency, &labels, row.latency_ms.map(Value::millis));
}
