//! The legs of a chain, and which hop is broken by them.
//!
//! Leg k is a request through the hops 1 to k. A node that gives no way out of its own has no leg, and
//! is proven by the one behind it.
//!
//! **Invariant:** a hop is blamed only if its leg fails while what is before it passes, and nobody is
//! while the whole path passes.

use crate::proxy::{Shown, Verdict};

/// What the legs and the whole path showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legs {
    /// One a hop; `None`: it has none.
    pub legs: Vec<Option<Shown>>,
    /// The whole path.
    pub path: Option<Shown>,
}

/// Where a path breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Break {
    /// Nowhere: the whole path passes.
    Nowhere,
    /// At the hop in this place.
    At(usize),
    /// Every leg passes and the clients' path does not.
    Outside(String),
    /// Nobody can say.
    Unknown(String),
}

impl Legs {
    /// What the leg of the hop in this place showed.
    #[must_use]
    pub fn verdict(&self, hop: usize) -> Option<Verdict> {
        self.legs.get(hop)?.as_ref().map(|shown| shown.verdict)
    }

    /// Why the leg of the hop in this place does not pass.
    #[must_use]
    pub fn why(&self, hop: usize) -> String {
        self.legs
            .get(hop)
            .and_then(Option::as_ref)
            .map(|shown| shown.why.clone())
            .unwrap_or_default()
    }

    /// Whether the hop in this place has a leg.
    #[must_use]
    pub fn has(&self, hop: usize) -> bool {
        self.legs.get(hop).is_some_and(Option::is_some)
    }

    /// Whether the whole path passes.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.verdict == Verdict::Passed)
    }

    /// Where the path breaks. `gone` says of a hop that what carries there is no node of the policy.
    #[must_use]
    pub fn breaks(&self, gone: impl Fn(usize) -> bool) -> Break {
        let places = 0..self.legs.len();
        if self.passes() {
            return places.into_iter().find(|hop| gone(*hop)).map_or(Break::Nowhere, Break::At);
        }
        for hop in places {
            if gone(hop) {
                return Break::At(hop);
            }
            match self.verdict(hop) {
                None | Some(Verdict::Passed) => {}
                Some(Verdict::Failed) => return Break::At(hop),
                Some(Verdict::Unknown) => return Break::Unknown(self.why(hop)),
            }
        }
        match &self.path {
            Some(path) if path.verdict == Verdict::Failed => Break::Outside(path.why.clone()),
            Some(path) => Break::Unknown(path.why.clone()),
            None => Break::Unknown("nothing was asked".to_owned()),
        }
    }
}
