//! Asks pages through one device.
//!
//! **Invariant:** all of a question is over at its timeout, and the first good answer ends it where
//! one is enough.

use super::carried::{self, Packets};
use super::clock;
use super::http::{self, Ask, AskFailure, Via};
use crate::names::Interface;
use crate::observation::{
    AnyOrAll, Expect, Page, PageReading, Pages, PagesReading, Patience, Silence, Way,
};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How much of a body is kept: an address, or the beginning of a portal's page.
const KEPT: usize = 256;

/// More than the least that is wished for, so that a page that has just that is seen whole.
const MARGIN: usize = 1_024;

/// No clock overflows on an hour, and no probe takes one.
const LONGEST: Duration = Duration::from_secs(3_600);

/// How long after the timeout a thread may take to say that it is over.
const SLACK: Duration = Duration::from_millis(50);

/// Asks.
///
/// # Errors
/// When the clock cannot be read.
pub fn ask(question: &Pages) -> anyhow::Result<PagesReading> {
    let end = Instant::now() + Duration::from_millis(question.timeout_ms).min(LONGEST);
    let pages = if let ([page], None) = (question.pages.as_slice(), question.patience) {
        vec![Some(ask_one(page, &question.way, &question.expect, end))]
    } else {
        let mut round = Round::new(question, end);
        match question.require {
            AnyOrAll::All => round.start_all(),
            AnyOrAll::Any => round.one_after_another(),
        }
        round.readings
    };
    Ok(PagesReading { at: clock::now()?, pages })
}

/// Pages on their way. A thread that hangs is left behind; it ends at its own timeout or with this
/// process.
struct Round<'a> {
    question: &'a Pages,
    end: Instant,
    /// The device, while nothing has come in by it.
    silent: Option<Watch<'a>>,
    readings: Vec<Option<PageReading>>,
    sender: Sender<(usize, PageReading)>,
    receiver: Receiver<(usize, PageReading)>,
}

impl<'a> Round<'a> {
    fn new(question: &'a Pages, end: Instant) -> Self {
        let (sender, receiver) = channel();
        let readings = vec![None; question.pages.len()];
        Self { question, end, silent: Watch::begin(question), readings, sender, receiver }
    }

    fn start_all(&mut self) {
        for (index, page) in self.question.pages.iter().enumerate() {
            self.start(index, page);
        }
        for _ in &self.question.pages {
            if self.wait(self.end + SLACK).is_none() {
                break;
            }
        }
        for reading in &mut self.readings {
            reading.get_or_insert(PageReading::TimedOut);
        }
    }

    /// Asks the first page, the next one joining when those before have failed or been silent for
    /// a quarter of the time or as long as the question says, so that a healthy tunnel costs one request.
    fn one_after_another(&mut self) {
        let quarter = self.question.timeout_ms / 4;
        let sooner = self.question.patience.map_or(quarter, |patience| patience.next_page_ms);
        let patience = Duration::from_millis(sooner.min(quarter));
        let mut waiting = 0_u32;
        let mut asked = 0_usize;
        for (index, page) in self.question.pages.iter().enumerate() {
            self.start(index, page);
            waiting += 1;
            asked += 1;
            let is_last = asked == self.question.pages.len();
            let until =
                if is_last { self.end + SLACK } else { (Instant::now() + patience).min(self.end) };
            while waiting > 0 {
                match self.wait(until) {
                    Some(true) => return,
                    Some(false) => waiting -= 1,
                    None => break,
                }
            }
            if self.is_over() {
                break;
            }
        }
        for reading in self.readings.iter_mut().take(asked) {
            reading.get_or_insert(PageReading::TimedOut);
        }
    }

    fn start(&mut self, index: usize, page: &Page) {
        let (page, way) = (page.clone(), self.question.way.clone());
        let (expect, end, sender) = (self.question.expect.clone(), self.end, self.sender.clone());
        let work = move || {
            // Nobody listens any more when another page was good first.
            drop(sender.send((index, ask_one(&page, &way, &expect, end))));
        };
        if let Err(why) = Builder::new().name("page".to_owned()).spawn(work) {
            let failed = PageReading::NotBindable(format!("starting a thread: {why}"));
            drop(self.sender.send((index, failed)));
        }
    }

    /// Takes the next reading and says whether it is a good one; `None` when `until` came first, or
    /// the device has been silent for too long.
    fn wait(&mut self, until: Instant) -> Option<bool> {
        let (index, reading) = loop {
            let now = Instant::now();
            self.look(now);
            let stop = until.min(self.end + SLACK);
            let next = self.silent.as_ref().map_or(stop, |silent| silent.next(now).min(stop));
            match self.receiver.recv_timeout(next.saturating_duration_since(now)) {
                Ok(seen) => break seen,
                Err(RecvTimeoutError::Timeout) if !self.is_over() && next < stop => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        };
        let good = self.question.expect.accepts(&reading);
        if let Some(place) = self.readings.get_mut(index) {
            *place = Some(reading);
        }
        Some(good)
    }
}

impl Round<'_> {
    /// Looks whether the device is still silent, and ends the round when it has been for long enough.
    fn look(&mut self, now: Instant) {
        match self.silent.as_ref().map(|silent| silent.judge(now)) {
            None | Some(Silence::Lasts) => {}
            Some(Silence::Broken) => self.silent = None,
            Some(Silence::Over) => self.end = now,
        }
    }

    /// Whether the time is over, or the device was silent for too long.
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

/// A device by which nothing has come in since it was asked.
struct Watch<'a> {
    device: &'a Interface,
    patience: Patience,
    began: Instant,
    before: Packets,
}

impl<'a> Watch<'a> {
    /// `None`: the question wants no such thing, or the device's counters cannot be read.
    fn begin(question: &'a Pages) -> Option<Self> {
        let Way::Device { device, .. } = &question.way else { return None };
        let (patience, before) = (question.patience?, carried::packets(device)?);
        Some(Self { device, patience, began: Instant::now(), before })
    }

    /// When the next look may say something else.
    fn next(&self, now: Instant) -> Instant {
        let at = |millis| self.began + Duration::from_millis(millis).min(LONGEST);
        let sooner = at(self.patience.unanswered_ms);
        if sooner > now { sooner } else { at(self.patience.silent_ms) }
    }

    fn judge(&self, now: Instant) -> Silence {
        let waited = now.saturating_duration_since(self.began);
        if waited < Duration::from_millis(self.patience.unanswered_ms) {
            return Silence::Lasts;
        }
        // Counters that cannot be read any more say nothing, and the pages have their whole time.
        let Some(packets) = carried::packets(self.device) else { return Silence::Broken };
        self.patience.judge(
            u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            packets.sent.saturating_sub(self.before.sent),
            packets.received.saturating_sub(self.before.received),
        )
    }
}

fn ask_one(page: &Page, way: &Way, expect: &Expect, end: Instant) -> PageReading {
    let via = match way {
        Way::Main => Via::Main,
        Way::Device { device, mark: None } => Via::Device(device),
        Way::Device { device, mark: Some(mark) } => Via::DeviceMark(device, *mark),
        Way::Proxy(proxy) => Via::Proxy(*proxy),
    };
    let resolves = matches!(way, Way::Proxy(_));
    if page.addresses.is_empty() && page.url.address().is_none() && !resolves {
        return PageReading::NoAddress;
    }
    let timeout = end.saturating_duration_since(Instant::now());
    if timeout.is_zero() {
        return PageReading::TimedOut;
    }
    let max_body = match expect {
        Expect::Bytes(least) => least.saturating_add(MARGIN),
        Expect::AnyAnswer | Expect::Status(_) | Expect::Address => KEPT,
    };
    let ask = Ask { url: page.url.as_str(), via, timeout, max_body, addresses: &page.addresses };
    match http::get(&ask) {
        Ok(answer) => PageReading::Answer {
            status: answer.status,
            body: beginning(&answer.body),
            bytes: answer.body.len(),
            elapsed_ms: u64::try_from(answer.elapsed.as_millis()).unwrap_or(u64::MAX),
        },
        Err(failure) => reading_of(failure, way),
    }
}

/// The beginning of a body, fit for a line of a log.
fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..KEPT).unwrap_or(body));
    text.chars().filter(|c| !c.is_control()).collect()
}

/// What a failure says about the tunnel.
fn reading_of(failure: AskFailure, way: &Way) -> PageReading {
    match failure {
        AskFailure::NoProxy(_) => PageReading::NoProxy(failure.to_string()),
        // Nobody else is connected to by this machine when a proxy is asked.
        AskFailure::Refused(_) if matches!(way, Way::Proxy(_)) => {
            PageReading::NoProxy(failure.to_string())
        }
        // An ICMP error through a dead tunnel says no more than silence.
        AskFailure::Timeout | AskFailure::Unreachable(_) => PageReading::TimedOut,
        AskFailure::NotBindable(why) => PageReading::NotBindable(why),
        AskFailure::Refused(_)
        | AskFailure::Tls(_)
        | AskFailure::Protocol(_)
        | AskFailure::BadUrl(_) => PageReading::Broken(failure.to_string()),
    }
}
