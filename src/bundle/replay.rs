//! Decides again on a bundle.
//!
//! **Invariant:** nothing is asked of the world: what the bundle does not hold is told as a
//! difference.

use super::{Blank, Bundle, fingerprint};
use crate::explain::{Decided, Explain, asked, evidence};
use crate::machine::{Considered, Machine, Subject};
use crate::observation::{Observation, Reading};
use crate::outcome::harmless;
use crate::record::Record;
use serde_json::Value;
use std::collections::BTreeMap;

/// What came of deciding again.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// What is decided now; `None`: something that was not recorded is asked for.
    pub decided: Option<Decided>,
    /// Why, for people.
    pub explain: Option<Explain>,
    /// In what it differs from what was recorded, a line each.
    pub differences: Vec<String>,
}

/// Decides again with the machine of the bundle's kind.
///
/// # Errors
/// Why the state in it is not understood.
pub fn replay<M: Machine>(policy: &M::Policy, bundle: &Bundle) -> Result<Replayed, String> {
    let record: Record<M::State> =
        serde_json::from_value(bundle.state.clone()).map_err(|error| {
            format!("its state is not understood: {}", harmless(&error.to_string()))
        })?;
    let subject = Subject::<M> {
        name: &bundle.policy,
        policy,
        state: record.machine.as_ref(),
        paused: bundle.paused,
        owned: &record.owned,
    };
    let readings: BTreeMap<&str, &Reading> =
        bundle.observation.iter().map(|seen| (seen.question.as_str(), &seen.reading)).collect();
    // Secrets are blank in the bundle already.
    let blank = Blank::default();
    let mut seen = Observation::new(bundle.at.clone());
    for look in &bundle.looks {
        let decided = match M::consider(&subject, &seen, &look.now, look.may_ask) {
            Considered::Ask(questions) => {
                for question in questions {
                    let Some(reading) = readings.get(fingerprint(&question, &blank).as_str())
                    else {
                        return Ok(stopped(format!(
                            "asks for {}, which was not seen",
                            asked(&question)
                        )));
                    };
                    seen.readings.insert(question, (*reading).clone());
                }
                continue;
            }
            Considered::Unable(reasons) => {
                let stands = record.machine.as_ref().map(|state| M::stands(state).0.into_owned());
                Decided::unable(stands, reasons)
            }
            Considered::Decide(decision) => {
                Decided::of(&subject, &record, &bundle.before, &decision)
            }
        };
        let mut differences = differences(&bundle.decision, &decided);
        let unasked = readings.len().saturating_sub(seen.readings.len());
        if unasked > 0 {
            differences.push(format!("{unasked} of what was seen is not asked for any more"));
        }
        let explain = Some(decided.explain::<M>(evidence(&seen)));
        return Ok(Replayed { decided: Some(decided), explain, differences });
    }
    Ok(stopped("asks for more than was seen".to_owned()))
}

fn stopped(difference: String) -> Replayed {
    Replayed { decided: None, explain: None, differences: vec![difference] }
}

/// In what a decision differs from the recorded one.
fn differences(was: &Decided, is: &Decided) -> Vec<String> {
    let of = |decided: &Decided| serde_json::to_value(decided).unwrap_or_default();
    let mut all = Vec::new();
    compare("", &of(was), &of(is), &mut all);
    all
}

/// The places in which two values differ, the deepest that both have.
fn compare(place: &str, was: &Value, is: &Value, all: &mut Vec<String>) {
    let below =
        |key: &str| if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
    match (was, is) {
        (Value::Object(before), Value::Object(after)) => {
            let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                let of = |of: &serde_json::Map<String, Value>| of.get(key).cloned();
                let (was, is) = (of(before).unwrap_or_default(), of(after).unwrap_or_default());
                compare(&below(key), &was, &is, all);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (n, (was, is)) in before.iter().zip(after).enumerate() {
                compare(&below(&n.to_string()), was, is, all);
            }
        }
        _ if was == is => {}
        _ => all.push(format!("{place}: recorded {was}, decided now {is}")),
    }
}
