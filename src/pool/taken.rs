//! Which of many candidates are taken: up already, or the same as one that was chosen before.
//!
//! **Invariant:** it answers as [`Candidate::same_endpoint`] and [`Candidate::same_pair`] would of
//! each that it was given, at a cost that does not grow with their number.

use super::candidate::Candidate;
use crate::wireguard::PublicKey;
use std::collections::BTreeSet;

/// Endpoints and pairs of keys that cannot be up a second time.
#[derive(Debug, Default)]
pub(super) struct Taken<'a> {
    endpoints: BTreeSet<(&'a PublicKey, u16, &'a str)>,
    pairs: BTreeSet<(&'a PublicKey, &'a PublicKey)>,
}

impl<'a> Taken<'a> {
    /// Whether the candidate is the same endpoint as one of them, or has the keys of one.
    pub(super) fn holds(&self, candidate: &Candidate) -> bool {
        let Candidate { ends, host, port, .. } = candidate;
        self.endpoints.contains(&(&ends.peer, *port, host.as_str()))
            || self.pairs.contains(&(&ends.own, &ends.peer))
    }

    /// Takes one more.
    pub(super) fn take(&mut self, candidate: &'a Candidate) {
        let Candidate { ends, host, port, .. } = candidate;
        self.endpoints.insert((&ends.peer, *port, host));
        self.pairs.insert((&ends.own, &ends.peer));
    }
}

impl<'a> FromIterator<&'a Candidate> for Taken<'a> {
    fn from_iter<I: IntoIterator<Item = &'a Candidate>>(candidates: I) -> Self {
        let mut taken = Self::default();
        for candidate in candidates {
            taken.take(candidate);
        }
        taken
    }
}
