//! What a slot's probe, its counters and the WAN say about it together.
//!
//! **Invariant:** unknown is neither healthy nor failed and never becomes either by being repeated;
//! a handshake alone proves nothing and is not even looked at.

use crate::observation::{Expect, PageReading, Pages, PagesReading};

/// So many steps in a row a timeout may be put down to load. After a minute of ten-second steps a
/// tunnel that answers nobody is of no use to anybody, however busy it is.
pub const SATURATED_STEPS: u32 = 6;

/// What the probe itself may receive: a TLS handshake and a page, for two pages, with room to spare.
/// More than this in one step is somebody's traffic, which proves that the tunnel carries it.
pub const OWN_BYTES: u64 = 64 * 1024;

/// The verdict on one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Requests are carried.
    Healthy {
        /// The fastest good answer.
        latency_ms: Option<u64>,
        /// The probe timed out and traffic showed that it was the load.
        saturated: bool,
    },
    /// They are not.
    Failed(Failure),
    /// It cannot be said.
    Unknown(String),
}

/// In which way a slot fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing comes back.
    Silent,
    /// Something else answers than the page: a portal, a wrong status, a wrong certificate.
    WrongAnswer(String),
    /// Small packets pass and large ones do not.
    Mtu,
    /// It leaves by the uplink's own address.
    WanAddress,
}

impl Failure {
    /// For people, after the slot's name.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Silent => "silent".to_owned(),
            Self::WrongAnswer(what) => format!("answered wrongly ({what})"),
            Self::Mtu => "losing large packets".to_owned(),
            Self::WanAddress => "leaving by the WAN's own address".to_owned(),
        }
    }
}

/// What is known of a slot in this step.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// The probe and its reading.
    pub probe: Option<(&'a Pages, &'a PagesReading)>,
    /// The large page and its reading.
    pub large: Option<(&'a Pages, &'a PagesReading)>,
    /// Bytes received since the last step.
    pub rx_grew: u64,
    /// Steps in a row that were put down to load before this one.
    pub saturated: u32,
    /// Whether it was seen to leave by the uplink's own address.
    pub wan_address: bool,
    /// Whether the WAN is up, or not known yet.
    pub wan_up: bool,
}

/// Judges one slot.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Health {
    let Some((question, reading)) = evidence.probe else {
        return Health::Unknown("not probed".to_owned());
    };
    if reading.passes(question) {
        return judge_passing(evidence, question, reading);
    }
    if !evidence.wan_up {
        return Health::Unknown("the WAN is down".to_owned());
    }
    let pages: Vec<&PageReading> = reading.pages.iter().flatten().collect();
    if pages.iter().all(|page| page.unasked().is_some()) {
        let why = pages.iter().find_map(|page| page.unasked());
        return Health::Unknown(why.unwrap_or_else(|| "nothing could be asked".to_owned()));
    }
    if let Some(wrong) = pages.iter().find_map(|page| wrong_answer(page, &question.expect)) {
        return Health::Failed(Failure::WrongAnswer(wrong));
    }
    if evidence.rx_grew > OWN_BYTES && evidence.saturated < SATURATED_STEPS {
        return Health::Healthy { latency_ms: None, saturated: true };
    }
    Health::Failed(Failure::Silent)
}

fn judge_passing(evidence: &Evidence<'_>, question: &Pages, reading: &PagesReading) -> Health {
    if evidence.wan_address {
        return Health::Failed(Failure::WanAddress);
    }
    if let Some((large_question, large)) = evidence.large
        && !large.passes(large_question)
        && evidence.rx_grew <= OWN_BYTES
        && evidence.wan_up
        && large.pages.iter().flatten().any(|page| match page {
            PageReading::TimedOut | PageReading::Broken(_) => true,
            PageReading::Answer { .. }
            | PageReading::NoAddress
            | PageReading::NotBindable(_)
            | PageReading::NoProxy(_) => false,
        })
    {
        return Health::Failed(Failure::Mtu);
    }
    Health::Healthy { latency_ms: reading.latency_ms(question), saturated: false }
}

/// What is wrong with an answer that came, if one came.
fn wrong_answer(page: &PageReading, expect: &Expect) -> Option<String> {
    match page {
        PageReading::Answer { status, bytes, .. } if !expect.accepts(page) => {
            Some(format!("status {status}, {bytes} bytes"))
        }
        PageReading::Broken(what) => Some(what.clone()),
        PageReading::Answer { .. }
        | PageReading::TimedOut
        | PageReading::NoAddress
        | PageReading::NotBindable(_)
        | PageReading::NoProxy(_) => None,
    }
}
