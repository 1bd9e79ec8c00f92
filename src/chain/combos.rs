//! The search for nodes that carry where only the whole path can be asked.
//!
//! **Invariant:** single replacements come before pairs, and a step makes no more tries than the hops
//! have other nodes together.

use super::name::NodeName;
use super::rebuild::{Field, Next};
use super::under_way::Seats;

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combos {
    /// What stood when it began.
    pub kept: Seats,
    /// All that can be tried, each with the places of its hops.
    list: Vec<Vec<(usize, NodeName)>>,
    /// Where it is in the list.
    pub place: usize,
    /// How many tries are left in this step.
    left: usize,
    /// The replacements that made the path pass.
    pub mended: Vec<(usize, NodeName)>,
    /// Whether everything was tried in vain.
    pub is_lost: bool,
}

impl Combos {
    /// Begins, or goes on at a place in the list.
    pub(super) fn begin(field: Field<'_>, stands: &Seats, place: usize) -> (Self, Next) {
        let singles: Vec<Vec<(usize, NodeName)>> = stands
            .iter()
            .enumerate()
            .filter(|(hop, _)| !field.is_paused(*hop))
            .map(|(hop, carries)| {
                let others = field.candidates(hop, carries).into_iter();
                others.map(|name| (hop, name)).collect()
            })
            .collect();
        let left = singles.iter().map(Vec::len).sum();
        let mut list: Vec<Vec<(usize, NodeName)>> =
            singles.iter().flatten().map(|one| vec![one.clone()]).collect();
        for (n, first) in singles.iter().enumerate() {
            for second in singles.iter().skip(n.saturating_add(1)) {
                let pair = |a: &(usize, NodeName)| {
                    let of = |b: &(usize, NodeName)| vec![a.clone(), b.clone()];
                    second.iter().map(of).collect::<Vec<_>>()
                };
                list.extend(first.iter().flat_map(pair));
            }
        }
        let place = if place < list.len() { place } else { 0 };
        let kept = stands.clone();
        let mut combos = Self { kept, list, place, left, mended: Vec::new(), is_lost: false };
        let next = combos.next(field);
        (combos, next)
    }

    fn next(&mut self, field: Field<'_>) -> Next {
        let Some(replaced) = self.list.get(self.place) else {
            self.is_lost = true;
            self.place = 0;
            return Next::Over(field.at_rest(&self.kept, |_| true));
        };
        if self.left == 0 {
            return Next::Over(self.kept.clone());
        }
        self.left = self.left.saturating_sub(1);
        let mut seats = self.kept.clone();
        for (hop, name) in replaced {
            let wanted = field.policy.hops.get(*hop);
            if let (Some(seat), Some(node)) =
                (seats.get_mut(*hop), wanted.and_then(|wanted| wanted.node(name)))
            {
                seat.clone_from(&node.member);
            }
        }
        Next::Try(seats)
    }

    /// Judges what was put in place.
    pub(super) fn judged(&mut self, field: Field<'_>, tries: &Seats, passes: bool) -> Next {
        if passes {
            self.mended = self.list.get(self.place).cloned().unwrap_or_default();
            self.place = 0;
            return Next::Over(tries.clone());
        }
        self.place = self.place.saturating_add(1);
        self.next(field)
    }
}
