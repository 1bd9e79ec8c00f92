//! What a walk over all states meets, held to the table of transitions that pictures are made of.
#![allow(
    dead_code,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::type_complexity,
    missing_docs,
    unreachable_pub,
    reason = "test code, and not every test uses all of it"
)]

use egressctl::machine::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// What the walks over each kind have met so far, and how many they were.
static TOGETHER: Mutex<BTreeMap<&'static str, (usize, Transitions)>> = Mutex::new(BTreeMap::new());

/// Transitions that were met, each with what steps said that made it.
#[derive(Clone, Debug, Default)]
pub struct Transitions(BTreeMap<(Option<String>, String), BTreeSet<BTreeSet<String>>>);

impl Transitions {
    /// Notes where a step began, where it ended, and what it said.
    pub fn note<'a>(
        &mut self,
        from: Option<&str>,
        to: &str,
        codes: impl IntoIterator<Item = &'a str>,
    ) {
        if from != Some(to) {
            let said = codes.into_iter().map(str::to_owned).collect();
            self.0.entry((from.map(str::to_owned), to.to_owned())).or_default().insert(said);
        }
    }

    /// The table has each of these transitions. Of its own rows, those that `due` names (by from, to
    /// and code) were all met, and told by that code.
    pub fn are_those_of<M: Machine>(&self, due: impl Fn(Option<&str>, &str, &str) -> bool) {
        let mut wrong = Vec::new();
        let table = M::edges();
        for ((from, to), said) in &self.0 {
            if !table.iter().any(|row| row.from == from.as_deref() && row.to == to) {
                let said: Vec<_> = said.iter().take(3).collect();
                wrong.push(format!("the table does not tell of {from:?} -> {to}: {said:?}"));
            }
        }
        for row in &table {
            let met = self.0.get(&(row.from.map(str::to_owned), row.to.to_owned()));
            for code in row.codes.iter().filter(|code| due(row.from, row.to, code)) {
                let is_met = met.is_some_and(|met| met.iter().any(|said| said.contains(*code)));
                if !is_met {
                    wrong.push(format!("never met: {:?} -> {}: {code}", row.from, row.to));
                }
            }
        }
        assert!(wrong.is_empty(), "{}: {}", M::KIND, wrong.join("\n"));
    }

    /// The same where several walks go over the states: each is held to the table, and once all have
    /// been made, the table to all of them.
    pub fn are_those_of_walks<M: Machine>(
        &self,
        walks: usize,
        due: impl Fn(Option<&str>, &str, &str) -> bool,
    ) {
        self.are_those_of::<M>(|_, _, _| false);
        let all = {
            let Ok(mut together) = TOGETHER.lock() else { panic!("another walk has failed") };
            let (made, met) = together.entry(M::KIND.as_str()).or_default();
            *made += 1;
            for (row, said) in &self.0 {
                met.0.entry(row.clone()).or_default().extend(said.iter().cloned());
            }
            (*made == walks).then(|| met.clone())
        };
        if let Some(all) = all {
            all.are_those_of::<M>(due);
        }
    }
}
