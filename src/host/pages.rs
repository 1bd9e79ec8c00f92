//! Asks pages, each through its device.
//!
//! All questions of a round are asked by one loop, which waits for all their sockets at once. Only what
//! speaks TLS or goes through a proxy has a thread of its own.
//!
//! **Invariant:** all of a question is over at its timeout, and the first good answer ends it where
//! one is enough.

mod round;
mod silence;

use super::clock;
use super::http::{self, Ask, AskFailure, Got, Plain, Via};
use crate::observation::{Expect, Page, PageReading, Pages, PagesReading, Way};
use crate::time::Moment;
use anyhow::Context as _;
use round::Round;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How much of a body is kept: an address, or the beginning of a portal's page.
const KEPT: usize = 256;

/// More than the least that is wished for, so that a page that has just that is seen whole.
const MARGIN: usize = 1_024;

/// Asks.
///
/// # Errors
/// When the clock cannot be read, or the kernel lets nobody wait.
pub fn ask(question: &Pages) -> anyhow::Result<PagesReading> {
    let mut all = ask_all(&[question])?;
    all.pop().context("a question has a reading")
}

/// Asks all of `questions` side by side; the readings are in their order.
///
/// # Errors
/// When the clock cannot be read, or the kernel lets nobody wait.
pub fn ask_all(questions: &[&Pages]) -> anyhow::Result<Vec<PagesReading>> {
    let mut asking = Asking::begin(questions);
    while asking.go_on()? {
        asking.wait()?;
    }
    asking.into_readings()
}

/// Which page of which question.
#[derive(Clone, Copy)]
struct Place {
    round: usize,
    page: usize,
}

/// All that is asked at once.
struct Asking<'a> {
    rounds: Vec<(Round<'a>, Option<Moment>)>,
    plain: Vec<(Place, Plain<'a>)>,
    threads: Option<Threads>,
}

/// Pages that are asked by threads. One that hangs is left behind; it ends at its own timeout or with
/// this process.
struct Threads {
    /// Is readable when a reading was sent.
    bell: Arc<OwnedFd>,
    sender: Sender<(Place, PageReading)>,
    receiver: Receiver<(Place, PageReading)>,
}

impl<'a> Asking<'a> {
    fn begin(questions: &[&'a Pages]) -> Self {
        let now = Instant::now();
        let rounds = questions.iter().map(|asked| (Round::begin(asked, now), None)).collect();
        Self { rounds, plain: Vec::new(), threads: None }
    }

    /// Asks what is due; whether there is anything left to wait for.
    fn go_on(&mut self) -> anyhow::Result<bool> {
        let mut is_open = false;
        for (number, (round, over)) in self.rounds.iter_mut().enumerate() {
            while let Some(index) = round.due(Instant::now()) {
                let Some(page) = round.question.pages.get(index) else { break };
                let place = Place { round: number, page: index };
                let (question, end) = (round.question, round.end());
                match begin(page, &question.way, &question.expect, end) {
                    Begun::Over(reading) => round.take(index, reading),
                    Begun::Plain(plain) => self.plain.push((place, *plain)),
                    Begun::Slow => {
                        if let Err(why) = start(&mut self.threads, place, page, question, end) {
                            let failed =
                                PageReading::NotBindable(format!("starting a thread: {why}"));
                            round.take(index, failed);
                        }
                    }
                }
            }
            if round.is_over() {
                if over.is_none() {
                    *over = Some(clock::now()?);
                }
            } else {
                is_open = true;
            }
        }
        let rounds = &self.rounds;
        self.plain.retain(|(place, _)| {
            rounds.get(place.round).is_some_and(|(round, _)| !round.is_over())
        });
        Ok(is_open)
    }

    /// Waits until something comes or is due, and takes what came.
    fn wait(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let open = self.rounds.iter().filter(|(round, _)| !round.is_over());
        let next = open.map(|(round, _)| round.next(now));
        let next = next.chain(self.plain.iter().map(|(_, plain)| plain.until())).min();
        let left = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        let mut sockets: Vec<PollFd<'_>> = Vec::with_capacity(self.plain.len() + 1);
        for (_, plain) in &self.plain {
            let (socket, flags) = plain.waits_for();
            sockets.push(PollFd::from_borrowed_fd(socket, flags));
        }
        if let Some(threads) = &self.threads {
            sockets.push(PollFd::from_borrowed_fd(threads.bell.as_fd(), PollFlags::IN));
        }
        match poll(&mut sockets, Some(&Timespec::try_from(left)?)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why).context("waiting for pages"),
        }
        let ready: Vec<bool> = sockets.iter().map(|socket| !socket.revents().is_empty()).collect();
        drop(sockets);
        let now = Instant::now();
        let mut readings: Vec<(Place, PageReading)> = Vec::new();
        let mut ready = ready.into_iter();
        for (place, plain) in &mut self.plain {
            let is_ready = ready.next().unwrap_or(false);
            let Some((round, _)) = self.rounds.get(place.round) else { continue };
            if let Some(result) = plain.go(is_ready, now) {
                readings.push((*place, told(result, &round.question.way)));
            }
        }
        self.plain.retain(|(place, _)| {
            !readings.iter().any(|(done, _)| done.round == place.round && done.page == place.page)
        });
        if let Some(threads) = &self.threads {
            if ready.next().unwrap_or(false) {
                // Whatever the counter says, all that was sent is taken.
                let _ = rustix::io::read(&threads.bell, &mut [0; 8]);
            }
            readings.extend(threads.receiver.try_iter());
        }
        for (place, reading) in readings {
            if let Some((round, _)) = self.rounds.get_mut(place.round) {
                round.take(place.page, reading);
            }
        }
        Ok(())
    }

    fn into_readings(self) -> anyhow::Result<Vec<PagesReading>> {
        let rounds = self.rounds.into_iter();
        rounds
            .map(|(round, at)| {
                let at = at.context("a question is over")?;
                Ok(PagesReading { at, pages: round.into_readings() })
            })
            .collect()
    }
}

/// How a page is being asked.
enum Begun<'a> {
    Over(PageReading),
    Plain(Box<Plain<'a>>),
    /// Only somebody who waits can ask it.
    Slow,
}

fn begin<'a>(page: &'a Page, way: &'a Way, expect: &Expect, end: Instant) -> Begun<'a> {
    let resolves = matches!(way, Way::Proxy(_));
    if page.addresses.is_empty() && page.url.address().is_none() && !resolves {
        return Begun::Over(PageReading::NoAddress);
    }
    let Some(ask) = asked(page, way, expect, end) else {
        return Begun::Over(PageReading::TimedOut);
    };
    if resolves || page.url.is_https() {
        return Begun::Slow;
    }
    match Plain::begin(ask, &page.url) {
        Ok(plain) => Begun::Plain(Box::new(plain)),
        Err(failure) => Begun::Over(reading_of(failure, way)),
    }
}

/// `None`: the time is over.
fn asked<'a>(page: &'a Page, way: &'a Way, expect: &Expect, end: Instant) -> Option<Ask<'a>> {
    let via = match way {
        Way::Main => Via::Main,
        Way::Device { device, mark: None } => Via::Device(device),
        Way::Device { device, mark: Some(mark) } => Via::DeviceMark(device, *mark),
        Way::Proxy(proxy) => Via::Proxy(*proxy),
    };
    let timeout = end.saturating_duration_since(Instant::now());
    let max_body = match expect {
        Expect::Bytes(least) => least.saturating_add(MARGIN),
        Expect::AnyAnswer | Expect::Status(_) | Expect::Address => KEPT,
    };
    let addresses = &page.addresses;
    let ask = Ask { url: page.url.as_str(), via, timeout, max_body, addresses };
    (!timeout.is_zero()).then_some(ask)
}

/// Starts a thread that asks a page.
fn start(
    threads: &mut Option<Threads>,
    place: Place,
    page: &Page,
    question: &Pages,
    end: Instant,
) -> std::io::Result<()> {
    let threads = match threads {
        Some(threads) => threads,
        None => {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let (sender, receiver) = channel();
            let bell = Arc::new(eventfd(0, flags)?);
            threads.insert(Threads { bell, sender, receiver })
        }
    };
    let (bell, sender) = (Arc::clone(&threads.bell), threads.sender.clone());
    let (page, way, expect) = (page.clone(), question.way.clone(), question.expect.clone());
    let work = move || {
        // Nobody listens any more when another page was good first.
        drop(sender.send((place, ask_one(&page, &way, &expect, end))));
        let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
    };
    Builder::new().name("page".to_owned()).spawn(work).map(drop)
}

/// Asks a page, and waits for it.
fn ask_one(page: &Page, way: &Way, expect: &Expect, end: Instant) -> PageReading {
    let Some(ask) = asked(page, way, expect, end) else { return PageReading::TimedOut };
    let got = http::get(&ask).map(|answer| Got {
        status: answer.status,
        body: answer.body,
        elapsed: answer.elapsed,
    });
    told(got, way)
}

fn told(result: Result<Got, AskFailure>, way: &Way) -> PageReading {
    match result {
        Ok(got) => PageReading::Answer {
            status: got.status,
            body: beginning(&got.body),
            bytes: got.body.len(),
            elapsed_ms: u64::try_from(got.elapsed.as_millis()).unwrap_or(u64::MAX),
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
