//! Nodes that were blamed and replaced, and how long they are not returned to.
//!
//! A node that fails again at once when it is returned to is left alone twice as long each time.
//!
//! **Invariant:** a mark is never shorter than the policy's time and never longer than its longest.

use super::name::NodeName;
use crate::policy::chain::Params;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// That a node is not returned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Since when.
    pub at: Moment,
    /// For so long.
    pub sec: u64,
}

/// What is remembered of a node's last mark when that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// How long it was.
    pub sec: u64,
    /// When the node was returned to since.
    pub returned: Option<Moment>,
}

/// What a mark is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It was blamed while it carried, and replaced.
    Blamed,
    /// It did not carry when it was returned to.
    Return,
    /// It did not pass while another one carries.
    Test,
}

/// The marks of a hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Those that run, and those that are over and not forgotten yet.
    pub marks: BTreeMap<NodeName, Mark>,
    /// How long the last ones were.
    pub grown: BTreeMap<NodeName, Grown>,
}

impl Marks {
    /// Marks a node, and says for how many seconds.
    pub fn mark(&mut self, node: &NodeName, fault: Fault, params: &Params, now: &Moment) -> u64 {
        let usual = params.fail_timeout_sec;
        let grown = self.grown.get(node);
        let soon = |grown: &Grown| {
            let long = Duration::from_secs(usual);
            grown.returned.as_ref().is_some_and(|at| now.since(at) < long)
        };
        let last = grown.map_or(usual, |grown| grown.sec);
        let sec = match fault {
            Fault::Test => last,
            Fault::Return => last.saturating_mul(2),
            Fault::Blamed if grown.is_some_and(soon) => last.saturating_mul(2),
            Fault::Blamed => usual,
        };
        let sec = sec.clamp(usual, params.fail_timeout_max_sec);
        self.marks.insert(node.clone(), Mark { at: now.clone(), sec });
        self.grown.insert(node.clone(), Grown { sec, returned: None });
        sec
    }

    /// A node was returned to, and carries.
    pub fn returned(&mut self, node: &NodeName, now: &Moment) {
        self.marks.remove(node);
        if let Some(grown) = self.grown.get_mut(node) {
            grown.returned = Some(now.clone());
        }
    }

    /// A node passes while it carries.
    pub fn passes(&mut self, node: &NodeName, params: &Params, now: &Moment) {
        let long = Duration::from_secs(params.fail_timeout_sec);
        let over = |grown: &Grown| grown.returned.as_ref().is_none_or(|at| now.since(at) >= long);
        self.marks.remove(node);
        if self.grown.get(node).is_some_and(over) {
            self.grown.remove(node);
        }
    }

    /// When a node may be returned to, if a mark keeps it from that now.
    #[must_use]
    pub fn until(&self, node: &NodeName, now: &Moment) -> Option<Moment> {
        let mark = self.marks.get(node)?;
        let long = Duration::from_secs(mark.sec);
        (now.since(&mark.at) < long).then(|| mark.at.after(long))
    }

    /// When a node was marked, if the mark still runs.
    #[must_use]
    pub fn since(&self, node: &NodeName, now: &Moment) -> Option<&Moment> {
        let mark = self.marks.get(node)?;
        (now.since(&mark.at) < Duration::from_secs(mark.sec)).then_some(&mark.at)
    }

    /// Forgets nodes that are not in the policy any more.
    pub fn keep(&mut self, is_known: impl Fn(&NodeName) -> bool) {
        self.marks.retain(|node, _| is_known(node));
        self.grown.retain(|node, _| is_known(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u64) -> Moment {
        Moment::epoch().after(Duration::from_secs(sec))
    }

    fn marked(marks: &mut Marks, fault: Fault, sec: u64) -> u64 {
        let node = NodeName::try_from("a1".to_owned()).unwrap();
        marks.mark(&node, fault, &Params::default(), &at(sec))
    }

    #[test]
    fn a_node_that_fails_at_each_return_is_left_alone_twice_as_long_up_to_the_longest() {
        let mut marks = Marks::default();
        assert_eq!(marked(&mut marks, Fault::Blamed, 0), 600);
        assert_eq!(marked(&mut marks, Fault::Test, 600), 600, "a test doubles nothing");
        let grown: Vec<u64> = (1..6).map(|n| marked(&mut marks, Fault::Return, n * 600)).collect();
        assert_eq!(grown, [1_200, 2_400, 4_800, 7_200, 7_200]);
    }

    #[test]
    fn a_node_that_carried_for_long_enough_is_as_good_as_new() {
        let node = NodeName::try_from("a1".to_owned()).unwrap();
        let mut marks = Marks::default();
        marked(&mut marks, Fault::Blamed, 0);
        marks.returned(&node, &at(1_000));
        assert_eq!(marked(&mut marks, Fault::Blamed, 1_599), 1_200, "within the time");
        marks.returned(&node, &at(3_000));
        marks.passes(&node, &Params::default(), &at(3_599));
        assert!(marks.grown.contains_key(&node));
        marks.passes(&node, &Params::default(), &at(3_600));
        assert_eq!(marked(&mut marks, Fault::Blamed, 3_601), 600);
    }
}
