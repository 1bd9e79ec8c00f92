//! The status page: how all policies are, in one file that a browser shows without anything else.
//!
//! A kind gives a `Shown` of its status; `crate::day` remembers how each part of it was for 24 hours;
//! `render` makes the page.
//!
//! **Invariant:** a page is made of values alone; every text that goes into it is escaped by the
//! template, and it asks for no other file, script or font.

pub mod bar;

use crate::day::Day;
use crate::names::PolicyName;
use crate::outcome::{Report, harmless};
use crate::status::{Head, Standing};
use askama::Template;
use jiff::Timestamp;
use std::borrow::Borrow;

/// How a part of a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Requests pass.
    Good,
    /// They do not.
    Bad,
    /// Nobody knows.
    Unknown,
    /// It is not asked: nothing is in it, or it stands by.
    Idle,
}

impl Health {
    /// As the style sheet has it.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Unknown => "unknown",
            Self::Idle => "idle",
        }
    }

    /// For people, and for who does not see colours.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "healthy",
            Self::Bad => "failed",
            Self::Unknown => "unknown",
            Self::Idle => "idle",
        }
    }
}

/// A slot, channel, member, host, hop or node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What its 24 hours are kept under: unique within the policy, and the same in every step.
    pub part: String,
    /// How it is.
    pub health: Health,
    /// When a check last told so; `None`: none did.
    pub seen: Option<Timestamp>,
    /// Its name.
    pub name: String,
    /// What fills it, where it leads, or where it stands.
    pub note: String,
    /// Whether it is what carries now.
    pub in_use: bool,
    /// Why it is as it is.
    pub why: String,
    /// Small facts, such as `31 ms`.
    pub facts: Vec<String>,
}

/// Rows of one sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they are.
    pub title: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// What a kind shows of its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its parts.
    pub groups: Vec<Group>,
    /// What is not as it should be, in few words, such as `temporarily through FRA`.
    pub badges: Vec<String>,
    /// Facts of the policy as a whole.
    pub facts: Vec<String>,
    /// What is due next.
    pub next: Vec<crate::status::Next>,
}

/// All that a page shows of one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What every status begins with.
    pub head: Head,
    /// How it is judged.
    pub standing: Standing,
    /// What its kind shows.
    pub shown: Shown,
    /// How its parts were.
    pub day: Day,
    /// The last transitions, the newest first.
    pub history: Vec<Report>,
}

/// The template.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    panels: &'a [Panel],
    troubles: &'a [String],
    now: Timestamp,
    worst: Standing,
}

impl Page<'_> {
    /// How a policy is judged, for the style sheet.
    fn class(standing: impl Borrow<Standing>) -> &'static str {
        match standing.borrow() {
            Standing::AsWished => "good",
            Standing::Degraded => "warn",
            Standing::Unprotected => "bad",
            Standing::Stale => "unknown",
        }
    }

    /// The same for people.
    fn words(standing: impl Borrow<Standing>) -> &'static str {
        match standing.borrow() {
            Standing::AsWished => "as wished",
            Standing::Degraded => "served, not as wished",
            Standing::Unprotected => "no protected egress",
            Standing::Stale => "not stepped lately",
        }
    }

    /// All in few words.
    fn summary(&self) -> &'static str {
        let shown = self.panels.iter().map(|panel| panel.standing).max();
        match self.worst {
            _ if shown.is_none() => "Nothing is watched",
            _ if shown != Some(self.worst) => "Something cannot be used or shown",
            Standing::AsWished => "Everything is as wished",
            Standing::Degraded => "Everyone is served, not all is as wished",
            Standing::Unprotected => "Somebody has no protected egress",
            Standing::Stale => "Something was not stepped lately",
        }
    }

    /// A moment for people.
    fn when(at: impl Borrow<Timestamp>) -> String {
        at.borrow().strftime("%Y-%m-%d %H:%M UTC").to_string()
    }

    /// The same where the day is near.
    fn near(&self, at: impl Borrow<Timestamp>) -> String {
        let at = at.borrow();
        let same_day =
            at.strftime("%Y-%m-%d").to_string() == self.now.strftime("%Y-%m-%d").to_string();
        let form = if same_day { "%H:%M UTC" } else { "%b %e, %H:%M UTC" };
        at.strftime(form).to_string()
    }

    /// A text without what a browser would not show.
    fn plain(text: impl AsRef<str>) -> String {
        harmless(text.as_ref())
    }

    /// The 24 hours of a part.
    fn bar(&self, panel: &Panel, row: &Row) -> bar::Bar {
        bar::Bar::of(&panel.day, &row.part, self.now)
    }
}

/// The page of all policies, in their order; `troubles` are policies that cannot be used or shown, a line
/// each. With one of them the page as a whole is never as wished.
///
/// # Errors
/// When the template cannot be filled, which is a fault of this program.
pub fn render(panels: &[Panel], troubles: &[String], now: Timestamp) -> anyhow::Result<String> {
    // Nobody knows how it is with what is not shown, and nothing at all is no good news.
    let unseen = (panels.is_empty() || !troubles.is_empty()).then_some(Standing::Stale);
    let shown = panels.iter().map(|panel| panel.standing);
    let worst = shown.chain(unseen).max().unwrap_or(Standing::Stale);
    Ok(Page { panels, troubles, now, worst }.render()?)
}

impl Panel {
    /// The policy.
    fn name(&self) -> &PolicyName {
        &self.head.policy
    }
}
