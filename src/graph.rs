//! The machine of a kind as a picture: its states, and every transition that it makes.
//!
//! A kind says its transitions in one table (`edges.rs` beside its rows). The walks over all reachable
//! states hold that table to what the machine does: they meet every row of it, and no transition
//! that is not there.
//!
//! **Invariant:** a picture is made of that table and of a state file, and of nothing else.

mod dot;
mod mermaid;
mod svg;

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One transition that a machine makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    /// Where the machine stood; `None`: it had no state yet.
    pub from: Option<&'static str>,
    /// Where it stands then.
    pub to: &'static str,
    /// The reasons that tell of it, by their codes.
    pub codes: &'static [&'static str],
}

/// A state that a machine, or one of its parts, stands in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The host or hop; `None`: the machine has no parts.
    pub part: Option<String>,
    /// The state.
    pub state: String,
}

/// How a picture is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// `stateDiagram-v2`, as Markdown shows it
    Mermaid,
    /// For Graphviz
    Dot,
    /// A picture, light or dark as its reader likes it
    Svg,
}

/// A picture before it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// What it shows, for people.
    pub title: String,
    /// Every transition.
    pub edges: Vec<Edge>,
    /// Who stands where.
    pub places: Vec<Place>,
}

impl Graph {
    /// The states, in the order in which the table comes to them.
    #[must_use]
    pub fn states(&self) -> Vec<&'static str> {
        let mut seen = BTreeSet::new();
        let named = self.edges.iter().flat_map(|edge| edge.from.into_iter().chain([edge.to]));
        named.filter(|state| seen.insert(*state)).collect()
    }

    /// Who stands in each state: names of parts, or nobody where the machine has none.
    fn standing(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut standing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for place in &self.places {
            standing.entry(&place.state).or_default().extend(place.part.as_deref());
        }
        standing
    }

    /// The picture.
    #[must_use]
    pub fn draw(&self, format: Format) -> String {
        match format {
            Format::Mermaid => mermaid::draw(self),
            Format::Dot => dot::draw(self),
            Format::Svg => svg::draw(self),
        }
    }
}
