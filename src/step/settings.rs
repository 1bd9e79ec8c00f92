//! Writes what other programs keep, and puts it back.
//!
//! **Invariant:** nothing is written over a value that nobody has looked at, and nothing is put back
//! but what a run of ours wrote.

use crate::host::{setting, side_by_side};
use crate::setting::{Edit, Flight, Setting, Written};
use std::collections::{BTreeMap, BTreeSet};

/// So many are written at a time: a node that dies takes many host names with it, and none of them
/// should wait for all the others.
const AT_A_TIME: usize = 16;

/// Writes all of them, each a change of its own, and says what became of each.
pub(super) fn write_all(edits: &BTreeMap<Setting, Edit>) -> BTreeMap<Setting, Written> {
    let edits: Vec<(&Setting, &Edit)> = edits.iter().collect();
    let written = edits.chunks(AT_A_TIME).flat_map(|some| {
        side_by_side(some, |(setting, edit)| ((*setting).clone(), write(setting, edit)))
    });
    written.collect()
}

fn write(setting: &Setting, edit: &Edit) -> Written {
    match setting::read(setting) {
        Err(why) => return Written::Refused { why, retry_after_sec: None },
        Ok(stands) if stands == edit.to => return Written::Done,
        Ok(stands) if stands != edit.expected => return Written::Overtaken { found: stands },
        Ok(_) => {}
    }
    let written = setting::write(setting, edit);
    if let Err(refusal) = &written
        && refusal.is_spoilt
    {
        return Written::Unreadable { why: refusal.why.clone() };
    }
    match setting::read(setting) {
        Ok(stands) if stands == edit.to => match written {
            Err(refusal) if refusal.is_doubtful => Written::Unreadable { why: refusal.why },
            Ok(()) | Err(_) => Written::Done,
        },
        Ok(stands) if stands == edit.expected => {
            let (why, retry_after_sec) = match written {
                Ok(()) => ("it was accepted and reads back as before".to_owned(), None),
                Err(refusal) => (refusal.why, refusal.retry_after_sec),
            };
            Written::Refused { why, retry_after_sec }
        }
        Ok(stands) => Written::Overtaken { found: stands },
        Err(why) => Written::Unreadable { why },
    }
}

/// Adds writes to those in flight, so that the journal names them before they are made.
pub(super) fn in_flight(flights: &mut Vec<Flight>, edits: &BTreeMap<Setting, Edit>) {
    for (setting, edit) in edits {
        match flights.iter_mut().find(|flight| flight.setting == *setting) {
            Some(flight) => {
                flight.ours.insert(edit.to.clone());
            }
            None => flights.push(Flight {
                setting: setting.clone(),
                was: edit.expected.clone(),
                ours: BTreeSet::from([edit.to.clone()]),
            }),
        }
    }
}

/// Puts back what is still ours. A third value is somebody's choice since, and stays.
///
/// # Errors
/// What could not be read or put back.
pub(super) fn put_back(flights: &[Flight]) -> Result<(), String> {
    for Flight { setting, was, ours } in flights {
        let stands = setting::read(setting)?;
        if stands == *was || !ours.contains(&stands) {
            continue;
        }
        match write(setting, &Edit { expected: stands, to: was.clone() }) {
            Written::Done | Written::Overtaken { .. } => {}
            Written::Refused { why, .. } | Written::Unreadable { why } => {
                return Err(format!("{}: {why}", setting.command(was)));
            }
        }
    }
    Ok(())
}
