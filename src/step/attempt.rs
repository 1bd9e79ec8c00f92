//! Carries a plan out and proves it.
//!
//! **Invariant:** clients are moved only onto what has just carried requests, and the world is read
//! back before anybody says that it is as wished.

use super::Run;
use crate::host::apply::{self, SpoiltConfig};
use crate::host::observe::observe;
use crate::host::stop;
use crate::kernel::{World, nft};
use crate::machine::Machine;
use crate::names::Interface;
use crate::observation::{Pages, Question, Reading};
use crate::plan::{Action, Check, Phase, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Why a change was not made.
pub(super) enum Trouble {
    /// A command failed, or the world was not as wished afterwards.
    Change(String),
    /// Slots do not carry requests.
    Answer(BTreeMap<Interface, String>),
}

impl Trouble {
    /// A spoilt file is its endpoint's fault, any other failure the machine's.
    fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<SpoiltConfig>() {
            Some(spoilt) => {
                Self::Answer(BTreeMap::from([(spoilt.interface.clone(), spoilt.why.clone())]))
            }
            None => Self::Change(format!("{error:#}")),
        }
    }
}

/// A change that is told to end before it is proven is undone.
fn goes_on() -> Result<(), Trouble> {
    if stop::is_asked() { Err(Trouble::Change("it was told to end".to_owned())) } else { Ok(()) }
}

impl<M: Machine> Run<'_, M> {
    /// Carries a plan out and proves it. Gives the world as it then is.
    pub(super) fn attempt(
        &self,
        steps: &[Step],
        checks: &[Check],
        desired: &World,
        makes: &BTreeSet<Interface>,
    ) -> Result<World, Trouble> {
        let phase = |wanted: Phase| {
            steps.iter().filter(move |step| step.phase == wanted).try_for_each(|step| {
                goes_on()?;
                apply::apply(&step.action, &self.hands).map_err(|error| Trouble::of(&error))
            })
        };
        phase(Phase::Build)?;
        leave(checks)?;
        self.prove(checks)?;
        phase(Phase::Place)?;
        phase(Phase::Clear)?;
        let change = |error: anyhow::Error| Trouble::Change(format!("{error:#}"));
        let actual = self.look(desired, makes).map_err(change)?;
        let mut wished = desired.clone();
        // That was done, and nothing shows it.
        wished.aims.clear();
        if let (Some(wished), Some(actual)) = (&mut wished.nft, &actual.nft) {
            let loaded = steps.iter().any(|step| matches!(step.action, Action::LoadNft { .. }));
            // What the kernel shows for a text is known only once it was loaded.
            if loaded {
                wished.listing.clone_from(&actual.listing);
                if nft::placement_in(&actual.text) != nft::placement_in(&wished.text) {
                    return Err(Trouble::Change(
                        "the placement of clients did not read back as it was written".to_owned(),
                    ));
                }
            }
        }
        self.no_difference(&actual, &wished).map_err(Trouble::Change)?;
        for check in checks {
            if let Check::Route { query, device, .. } = check {
                let way = apply::route_get(query).map_err(change)?;
                let named = way.and_then(|way| way.dev);
                if named.as_deref() != Some(device.as_str()) {
                    return Err(Trouble::Change(format!(
                        "{}, but the kernel says {}",
                        check.describe(),
                        named.unwrap_or_else(|| "unreachable".to_owned())
                    )));
                }
            }
        }
        Ok(actual)
    }

    /// Asks through every newly loaded slot, side by side.
    fn prove(&self, checks: &[Check]) -> Result<(), Trouble> {
        let mut open: Vec<(&Interface, &Pages, u32)> = checks
            .iter()
            .filter_map(|check| match check {
                Check::Answer { interface, ask, attempts } => Some((interface, ask, *attempts)),
                Check::Route { .. } | Check::Outside { .. } => None,
            })
            .collect();
        let mut failed = BTreeMap::new();
        let mut attempt = 0;
        while !open.is_empty() {
            goes_on()?;
            attempt += 1;
            let questions = open
                .iter()
                .map(|(_, ask, _)| Question::Pages(Pages { turn: attempt, ..(*ask).clone() }))
                .collect();
            let readings = observe(questions, &self.eyes())
                .map_err(|error| Trouble::Change(format!("{error:#}")))?;
            let mut again = Vec::new();
            for (interface, ask, attempts) in open {
                let passed = readings.iter().any(|(question, reading)| match (question, reading) {
                    (Question::Pages(pages), Reading::Pages(seen)) => {
                        pages.asker == ask.asker && seen.passes(pages)
                    }
                    _ => false,
                });
                if passed {
                    continue;
                }
                if attempt < attempts {
                    again.push((interface, ask, attempts));
                } else {
                    failed.insert(interface.clone(), "no request was answered".to_owned());
                }
            }
            open = again;
        }
        if failed.is_empty() { Ok(()) } else { Err(Trouble::Answer(failed)) }
    }

    /// Tells a dead tunnel from a dead uplink.
    pub(super) fn uplink_answers(&self, references: &[Question]) -> anyhow::Result<bool> {
        // Whoever is told to end soon asks nobody.
        if references.is_empty() || stop::is_asked() {
            return Ok(true);
        }
        let readings = observe(references.to_vec(), &self.eyes())?;
        Ok(readings.iter().any(|(question, reading)| match (question, reading) {
            (Question::Pages(pages), Reading::Pages(seen)) => seen.passes(pages),
            _ => false,
        }))
    }
}

/// Asks the kernel whether what carries each newly loaded tunnel leaves by none of our own.
fn leave(checks: &[Check]) -> Result<(), Trouble> {
    let mut failed = BTreeMap::new();
    for check in checks {
        let Check::Outside { interface, query, tunnels } = check else { continue };
        let way = apply::route_get(query).map_err(|error| Trouble::of(&error))?;
        if let Some(dev) = way.and_then(|way| way.dev)
            && tunnels.iter().any(|tunnel| tunnel.as_str() == dev)
        {
            failed.insert(interface.clone(), format!("its endpoint is led into {dev}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Trouble::Answer(failed)) }
}
