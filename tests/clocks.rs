//! Whatever somebody does to the wall clock, and whenever the machine is started anew: no window ends early, and none never.

use egressctl::time::{Moment, carried_over};
use jiff::Timestamp;
use std::time::Duration;

pub(crate) const YEAR: i64 = 31_557_600_000;

/// A machine, its clocks, and what really passed.
#[derive(Clone)]
pub(crate) struct Machine {
    /// Milliseconds that have really passed.
    truth: i64,
    /// What the wall clock shows beyond that.
    ahead: i64,
    boot: usize,
    booted: i64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { truth: 1_790_000_000_000, ahead: 0, boot: 0, booted: 1_789_999_000_000 }
    }

    /// Something befalls it.
    pub(crate) fn suffers(&mut self, event: Event) {
        match event {
            Event::Passes(ms) => self.truth += ms,
            Event::Set(ms) => self.ahead += ms,
            Event::Off(ms, ahead) => {
                self.truth += ms;
                self.ahead += ahead;
                self.boot += 1;
                // A start takes a while.
                self.booted = self.truth;
                self.truth += 5_000;
            }
        }
    }

    /// How many milliseconds have really passed since it began.
    pub(crate) fn passed(&self) -> i64 {
        self.truth - Self::new().truth
    }

    pub(crate) fn now(&self) -> Moment {
        Moment {
            at: Timestamp::from_millisecond(self.truth + self.ahead).unwrap(),
            boot: format!("boot {}", self.boot).into(),
            up_ms: self.truth - self.booted,
        }
    }
}

/// What befalls a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// So many milliseconds pass; suspended or not makes no difference to `CLOCK_BOOTTIME`.
    Passes(i64),
    /// Somebody, or NTP, sets the clock by so much.
    Set(i64),
    /// It is off for so long, and comes up with its clock by so much further.
    Off(i64, i64),
}

/// The events that a walk makes, with a step after each: minutes, a day, and years both ways.
const EVENTS: [Event; 9] = [
    Event::Passes(60_000),
    Event::Passes(3_600_000),
    Event::Set(-3 * YEAR),
    Event::Set(3 * YEAR),
    Event::Set(-45_000),
    Event::Off(30_000, 0),
    // No clock of its own: it comes up where the system was built.
    Event::Off(30_000, -4 * YEAR),
    Event::Off(86_400_000, 0),
    Event::Off(30_000, -600_000),
];

/// Plays events; gives what passed since the start as the state knows it, and what really did, each with
/// how far a clock that came up behind may hide time that the machine was off.
fn played(events: &[Event]) -> (i64, i64, i64) {
    let mut machine = Machine::new();
    let mut remembered = machine.now();
    let (mut last, begun, mut off) = (machine.now(), machine.truth, 0);
    for event in events {
        machine.suffers(*event);
        if let Event::Off(ms, _) = event {
            off += ms;
        }
        // A step: what is remembered of another boot is carried over, as by the real one.
        let now = machine.now();
        remembered = carried_over(&remembered, &last, &now);
        assert_eq!(remembered.boot, now.boot);
        last = now;
    }
    let known = machine.now().since(&remembered);
    (i64::try_from(known.as_millis()).unwrap(), machine.truth - begun, off)
}

/// Every row of up to four events.
fn each_row(work: &mut impl FnMut(&[Event])) {
    fn longer(row: &mut Vec<Event>, work: &mut impl FnMut(&[Event])) {
        work(row);
        if row.len() == 4 {
            return;
        }
        for event in EVENTS {
            row.push(event);
            longer(row, work);
            row.pop();
        }
    }
    longer(&mut Vec::new(), work);
}

#[test]
fn a_window_never_ends_before_its_time_nor_later_than_by_the_time_that_the_machine_was_off() {
    let mut rows = 0;
    each_row(&mut |events| {
        let (known, truth, off) = played(events);
        // Between two boots nobody but the wall clock knows how long it was, and what the clock was
        // set by since the last step cannot be told from that: here a step follows every setting.
        assert!(known <= truth, "{events:?}: {known} of {truth} ms are known");
        assert!(known >= truth - off, "{events:?}: {known} of {truth} ms, {off} of them off");
        rows += 1;
    });
    assert_eq!(rows, 1 + 9 + 81 + 729 + 6_561);
}

#[test]
fn a_clock_that_came_up_ahead_is_taken_for_time_that_the_machine_was_off() {
    let (known, _, _) = played(&[Event::Off(30_000, YEAR)]);
    assert!(known >= YEAR, "{known}");
}

#[test]
fn a_suspended_machine_counts_the_time_it_slept() {
    // CLOCK_BOOTTIME goes on while CLOCK_MONOTONIC stands still.
    assert_eq!(played(&[Event::Passes(8 * 3_600_000)]).0, 8 * 3_600_000);
}

#[test]
fn what_came_after_another_still_does() {
    let mut machine = Machine::new();
    let first = machine.now();
    machine.ahead += 3 * YEAR;
    machine.truth += 1_000;
    let second = machine.now();
    let last = machine.now();
    machine.boot += 1;
    machine.ahead = -10 * YEAR;
    machine.booted = machine.truth;
    machine.truth += 20_000;
    let now = machine.now();
    let [first, second] = [first, second].map(|moment| carried_over(&moment, &last, &now));
    assert_eq!(second.up_ms - first.up_ms, 1_000);
    assert_eq!(now.since(&second), Duration::from_secs(20));
    assert!(first.up_ms < second.up_ms && first.at < second.at);
}
