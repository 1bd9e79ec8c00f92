//! A future that came true is written down: the barrier of the next boot, the state, and the flows that end.
//!
//! **Invariant:** a run that dies anywhere in here leaves a barrier that is too closed rather than too open.

use super::Run;
use super::look::{loaded_nft, owned_after};
use crate::host::cut::{CutResult, cut};
use crate::host::{clock, files};
use crate::kernel::{World, nft};
use crate::machine::{Cut, Future, Machine};
use crate::record::Record;
use std::path::PathBuf;

impl<M: Machine> Run<'_, M> {
    /// Writes down the future that came true.
    pub(super) fn commit(
        &mut self,
        future: &Future<M::State>,
        desired: &World,
        actual: &World,
        backup: &World,
    ) -> anyhow::Result<()> {
        // What closes more is written before the state that wants it, what opens more after it: a
        // run that dies in between leaves a barrier that is too closed rather than too open.
        let opens = future.barrier.as_deref().is_none_or(nft::is_open);
        if !opens {
            self.barrier(future.barrier.as_deref())?;
        }
        self.adopt(future, desired, actual, backup);
        self.held.commit(&self.record, &clock::now()?)?;
        if opens {
            self.barrier(future.barrier.as_deref())?;
        }
        self.forget(&future.generations);
        Ok(())
    }

    /// Takes the future that came true into the record.
    pub(super) fn adopt(
        &mut self,
        future: &Future<M::State>,
        desired: &World,
        actual: &World,
        backup: &World,
    ) {
        let owned =
            owned_after(&self.record.owned, &future.world, backup, M::realms(self.order.policy));
        self.record = Record {
            machine: Some(future.state.clone()),
            nft: loaded_nft(desired, actual),
            owned,
            // In the same write, or a run that dies here would be followed by one that builds again.
            paused: if self.pausing || future.pauses {
                self.record.paused.clone().or_else(|| Some(self.started.clone()))
            } else {
                self.record.paused.clone()
            },
            ..self.record.clone()
        };
    }

    pub(super) fn barrier_file(&self) -> PathBuf {
        self.folder.path().join("barrier.nft")
    }

    /// Keeps what closes the clients at boot in step with the state.
    pub(super) fn barrier(&self, text: Option<&str>) -> anyhow::Result<()> {
        files::keep_in_step(&self.barrier_file(), text.map(str::as_bytes), 0o600)
    }
}

/// Ends flows. Their failing is told and undoes nothing: the clients are where they belong.
pub(super) fn cut_all(cuts: &[Cut]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut ended = 0_u64;
    for wanted in cuts {
        match cut(wanted) {
            Ok(CutResult::Ended(flows)) => ended = ended.saturating_add(flows),
            Ok(CutResult::NoTool) => {
                notes.push("open flows were not ended: install conntrack".to_owned());
                break;
            }
            Err(error) => notes.push(format!("open flows were not ended: {error:#}")),
        }
    }
    if ended > 0 {
        notes.push(format!("{ended} open flows ended"));
    }
    notes
}
