//! Pages asked through one device, and how they answered.
//!
//! **Invariant:** what a good answer is stands in the question, so that host and core judge alike.

use crate::names::{Interface, Mark};
use crate::policy::pool::Require;
use crate::proxy::Proxy;
use crate::time::Moment;
use crate::url::Target;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Who asks for pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Asker {
    /// The uplink, for its references.
    Wan,
    /// The uplink, for its exit address.
    WanExit,
    /// A slot or the standby tunnel, for its health.
    Slot(Interface),
    /// A slot whose check has failed, once more in the same step.
    SlotAgain(Interface),
    /// A slot, for a page of more than one packet.
    SlotLarge(Interface),
    /// A slot, for its exit address.
    SlotExit(Interface),
    /// A channel, member or node, by its name.
    Named(String),
}

/// Pages to ask for, through one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pages {
    /// Who asks.
    pub asker: Asker,
    /// Which time this is asked in this run, from 0.
    pub turn: u32,
    /// The way that the request must take.
    pub way: Way,
    /// The pages.
    pub pages: Vec<Page>,
    /// Whether one good answer is enough.
    pub require: AnyOrAll,
    /// What a good answer is.
    pub expect: Expect,
    /// How long all of it may take.
    pub timeout_ms: u64,
    /// How long silence is waited for, where that is shorter.
    #[serde(default)]
    pub patience: Option<Patience>,
}

/// How long a device is waited for by which nothing comes in at all. Whatever comes in shows that the
/// tunnel carries something, and gives the pages their whole time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Patience {
    /// The next page joins when those before have been silent for so long.
    pub next_page_ms: u64,
    /// Silence is over after so long, where others have sent by the device meanwhile and got nothing either.
    pub unanswered_ms: u64,
    /// It is over after so long in any case.
    pub silent_ms: u64,
    /// So many packets the asker may send before it hears anything; what is more is somebody else's.
    pub own_packets: u64,
}

/// What the counters of a device say while an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Something came in: the pages have their whole time.
    Broken,
    /// Nothing came in, and it is too early to say that nothing will.
    Lasts,
    /// Nothing came in for long enough.
    Over,
}

impl Patience {
    /// Judges a device that, since it was asked `waited_ms` ago, has sent and received so many packets.
    #[must_use]
    pub fn judge(&self, waited_ms: u64, sent: u64, received: u64) -> Silence {
        let others_ask = sent > self.own_packets;
        if received > 0 {
            Silence::Broken
        } else if waited_ms >= self.silent_ms || (others_ask && waited_ms >= self.unanswered_ms) {
            Silence::Over
        } else {
            Silence::Lasts
        }
    }
}

impl Pages {
    /// What stands before everything else that somebody may ask for.
    pub(super) fn least(asker: Asker) -> Self {
        Self {
            asker,
            turn: 0,
            way: Way::Main,
            pages: Vec::new(),
            require: AnyOrAll::Any,
            expect: Expect::AnyAnswer,
            timeout_ms: 0,
            patience: None,
        }
    }
}

/// The way that a request must take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// As the kernel routes what this machine sends itself.
    Main,
    /// Out by one device and no other.
    Device {
        /// The device.
        device: Interface,
        /// The mark that it carries, where the routing rules know one for the device.
        mark: Option<Mark>,
    },
    /// Through a proxy on this machine, which resolves the host.
    Proxy(Proxy),
}

/// Whether one good answer is enough. The policy's word, in a form that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AnyOrAll {
    /// One is enough.
    Any,
    /// All must be good.
    All,
}

impl From<Require> for AnyOrAll {
    fn from(require: Require) -> Self {
        match require {
            Require::Any => Self::Any,
            Require::All => Self::All,
        }
    }
}

/// One page and where its host is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Page {
    /// The page.
    pub url: Target,
    /// The host's addresses; none: it cannot be asked.
    pub addresses: Vec<IpAddr>,
}

/// What a good answer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Expect {
    /// Any answer: somebody is there.
    AnyAnswer,
    /// Just these statuses, and nothing in the body of a 204.
    Status(Vec<u16>),
    /// Status 200 and at least so many bytes.
    Bytes(usize),
    /// Status 200 and an address as the body.
    Address,
}

/// Readings of pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesReading {
    /// When the last of them was seen.
    pub at: Moment,
    /// One a page; `None`: it did not have to be asked.
    pub pages: Vec<Option<PageReading>>,
}

/// How one page answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageReading {
    /// It answered.
    Answer {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// How many bytes the body had.
        bytes: usize,
        /// How long it took.
        elapsed_ms: u64,
    },
    /// No answer in time.
    TimedOut,
    /// A refusal, a reset, an answer that is not HTTP, a wrong certificate.
    Broken(String),
    /// No address of the host was ever known.
    NoAddress,
    /// The request cannot be bound to its device.
    NotBindable(String),
    /// The proxy is not there or refuses us, which says nothing about what is behind it.
    NoProxy(String),
}

impl PageReading {
    /// Why the page could not be asked at all, which says nothing of what is behind.
    #[must_use]
    pub fn unasked(&self) -> Option<String> {
        match self {
            Self::NoAddress => Some("no address of the page was ever known".to_owned()),
            Self::NotBindable(why) | Self::NoProxy(why) => Some(why.clone()),
            Self::Answer { .. } | Self::TimedOut | Self::Broken(_) => None,
        }
    }
}

impl Expect {
    /// Whether an answer is a good one.
    #[must_use]
    pub fn accepts(&self, reading: &PageReading) -> bool {
        let PageReading::Answer { status, body, bytes, .. } = reading else { return false };
        match self {
            Self::AnyAnswer => true,
            Self::Status(wished) => wished.contains(status) && (*status != 204 || *bytes == 0),
            Self::Bytes(least) => *status == 200 && bytes >= least,
            Self::Address => *status == 200 && body.trim().parse::<IpAddr>().is_ok(),
        }
    }
}

impl PagesReading {
    /// Whether the pages answered as required.
    #[must_use]
    pub fn passes(&self, question: &Pages) -> bool {
        let good = |page: &Option<PageReading>| {
            page.as_ref().is_some_and(|page| question.expect.accepts(page))
        };
        match question.require {
            AnyOrAll::Any => self.pages.iter().any(good),
            AnyOrAll::All => !self.pages.is_empty() && self.pages.iter().all(good),
        }
    }

    /// How long the fastest good answer took.
    #[must_use]
    pub fn latency_ms(&self, question: &Pages) -> Option<u64> {
        self.pages
            .iter()
            .flatten()
            .filter(|page| question.expect.accepts(page))
            .filter_map(|page| match page {
                PageReading::Answer { elapsed_ms, .. } => Some(*elapsed_ms),
                PageReading::TimedOut
                | PageReading::Broken(_)
                | PageReading::NoAddress
                | PageReading::NotBindable(_)
                | PageReading::NoProxy(_) => None,
            })
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Expect, Page, PageReading, Pages, PagesReading, Patience, Silence, Way};
    use crate::observation::{Observation, Question, Reading};
    use crate::time::Moment;
    use crate::url::Target;
    use std::collections::BTreeSet;

    #[test]
    fn what_one_has_asked_for_is_found_among_all_questions() {
        let url = Target::try_from("http://192.0.2.1/".to_owned()).unwrap();
        let page = Page { url, addresses: Vec::new() };
        let slot = |name: &str| Asker::Slot(name.to_owned().try_into().unwrap());
        let mut seen = Observation::new(Moment::epoch());
        let reading =
            PagesReading { at: Moment::epoch(), pages: vec![Some(PageReading::TimedOut)] };
        let all = [Asker::Wan, slot("vpn1"), slot("vpn2"), Asker::Named("vpn1".to_owned())];
        for asker in &all {
            for turn in [0, 7] {
                let way = Way::Device { device: "eth0".to_owned().try_into().unwrap(), mark: None };
                let least = Pages::least(asker.clone());
                let expect = Expect::Bytes(1);
                let pages = Pages { turn, way, pages: vec![page.clone()], expect, ..least };
                seen.readings.insert(Question::Pages(pages), Reading::Pages(reading.clone()));
            }
        }
        seen.readings.insert(Question::Names(BTreeSet::new()), Reading::Waited);
        seen.readings.insert(Question::Wait { turn: 0, millis: 1 }, Reading::Waited);
        for asker in &all {
            let turns: Vec<u32> = seen.pages(asker).iter().map(|(pages, _)| pages.turn).collect();
            assert_eq!(turns, [0, 7], "{asker:?}");
        }
        assert!(seen.pages(&slot("vpn3")).is_empty() && seen.pages(&Asker::WanExit).is_empty());
    }

    #[test]
    fn silence_is_over_sooner_where_others_are_not_answered_either() {
        let patience =
            Patience { next_page_ms: 25, unanswered_ms: 100, silent_ms: 200, own_packets: 2 };
        assert_eq!(patience.judge(99, 9, 0), Silence::Lasts, "too early for anybody");
        assert_eq!(patience.judge(100, 2, 0), Silence::Lasts, "nobody else has asked");
        assert_eq!(patience.judge(100, 3, 0), Silence::Over);
        assert_eq!(patience.judge(199, 2, 0), Silence::Lasts);
        assert_eq!(patience.judge(200, 0, 0), Silence::Over);
        assert_eq!(patience.judge(900, 9, 1), Silence::Broken, "something came in");
    }
}
