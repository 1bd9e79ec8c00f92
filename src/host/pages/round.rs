//! One question about pages: which of them is asked when, and when it is over.
//!
//! **Invariant:** all of a question is over at its timeout, and the first good answer ends it where
//! one is enough; a page that was asked and is not answered by then has timed out.

use super::silence::Watch;
use crate::observation::{AnyOrAll, PageReading, Pages, Silence};
use std::time::{Duration, Instant};

/// No clock overflows on an hour, and no probe takes one.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A question on its way.
pub(super) struct Round<'a> {
    pub(super) question: &'a Pages,
    end: Instant,
    /// The device, while nothing has come in by it.
    silent: Option<Watch<'a>>,
    readings: Vec<Option<PageReading>>,
    /// How many pages were asked, in their order.
    asked: usize,
    /// How many of those have not answered.
    open: usize,
    /// When the next page joins.
    joins: Instant,
    is_over: bool,
}

impl<'a> Round<'a> {
    pub(super) fn begin(question: &'a Pages, now: Instant) -> Self {
        let end = now + Duration::from_millis(question.timeout_ms).min(LONGEST);
        let silent = Watch::begin(question, now);
        let readings = vec![None; question.pages.len()];
        let is_over = question.pages.is_empty();
        Self { question, end, silent, readings, asked: 0, open: 0, joins: now, is_over }
    }

    /// The next page to be asked at once, if one is due. Where one good answer is enough a page joins when
    /// those before have failed or been silent for a quarter of the time or as long as the question says,
    /// so that a healthy tunnel costs one request.
    pub(super) fn due(&mut self, now: Instant) -> Option<usize> {
        self.look(now);
        if self.is_over {
            return None;
        }
        if now >= self.end {
            self.time_is_over();
            return None;
        }
        let is_due = match self.question.require {
            AnyOrAll::All => true,
            AnyOrAll::Any => self.open == 0 || now >= self.joins,
        };
        if self.asked == self.readings.len() || !is_due {
            return None;
        }
        let index = self.asked;
        self.asked += 1;
        self.open += 1;
        self.joins = now + self.patience();
        Some(index)
    }

    /// Takes a page's reading.
    pub(super) fn take(&mut self, index: usize, reading: PageReading) {
        if self.is_over {
            return;
        }
        let is_good = self.question.expect.accepts(&reading);
        let Some(place @ None) = self.readings.get_mut(index) else { return };
        *place = Some(reading);
        self.open = self.open.saturating_sub(1);
        let is_enough = match self.question.require {
            AnyOrAll::Any => is_good,
            AnyOrAll::All => false,
        };
        self.is_over = is_enough || (self.open == 0 && self.asked == self.readings.len());
    }

    /// When there may be something to do though no page answers.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let looks = self.silent.as_ref().map(|silent| silent.next(now));
        let joins = match self.question.require {
            AnyOrAll::Any if self.asked < self.readings.len() => Some(self.joins),
            AnyOrAll::Any | AnyOrAll::All => None,
        };
        looks.into_iter().chain(joins).fold(self.end, Instant::min)
    }

    /// When all of it is over.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What was seen of the pages; `None`: one did not have to be asked, or not to answer any more.
    pub(super) fn into_readings(self) -> Vec<Option<PageReading>> {
        self.readings
    }

    fn patience(&self) -> Duration {
        let quarter = self.question.timeout_ms / 4;
        let sooner = self.question.patience.map_or(quarter, |patience| patience.next_page_ms);
        Duration::from_millis(sooner.min(quarter))
    }

    /// Looks whether the device is still silent, and ends the round when it has been for long enough.
    fn look(&mut self, now: Instant) {
        if self.is_over {
            return;
        }
        match self.silent.as_ref().map(|silent| silent.judge(now)) {
            None | Some(Silence::Lasts) => {}
            Some(Silence::Broken) => self.silent = None,
            Some(Silence::Over) => self.end = now,
        }
    }

    fn time_is_over(&mut self) {
        for reading in self.readings.iter_mut().take(self.asked) {
            reading.get_or_insert(PageReading::TimedOut);
        }
        self.is_over = true;
    }
}
