//! All that one decision was made of, in one file: policy, state, observation, and the decision.
//!
//! Anyone can decide again from it, on any machine, with no right and no network, and sees why.
//! `step --record` writes one, `replay` reads it.
//!
//! **Invariant:** a bundle holds no key, token or code: machines are given none, and what a policy's
//! files of secrets hold is blanked wherever it may stand.

mod blank;
mod replay;

pub use blank::Blank;
pub use replay::{Replayed, replay};

use crate::explain::Decided;
use crate::in_order::{Json, Object};
use crate::kernel::World;
use crate::kernel::read::sha256;
use crate::names::PolicyName;
use crate::observation::{Question, Reading};
use crate::outcome::{Report, harmless};
use crate::policy::Kind;
use crate::time::Moment;
use anyhow::bail;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The version of the format.
const VERSION: u32 = 1;

/// One question to the machine: whether it knows enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// When.
    pub now: Moment,
    /// Whether there was time to ask for more.
    pub may_ask: bool,
}

/// What a run has seen and decided, before its bundle is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Witness {
    /// When the run began to look.
    pub at: Moment,
    /// Whether the policy was paused.
    pub paused: bool,
    /// What was remembered.
    pub record: Value,
    /// When the machine was asked.
    pub looks: Vec<Look>,
    /// What was seen.
    pub readings: BTreeMap<Question, Reading>,
    /// What there was of the policy's own before.
    pub before: World,
    /// What was decided.
    pub decided: Decided,
    /// Why, for people.
    pub explain: crate::explain::Explain,
}

/// One reading, and the question that it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What tells the question from others.
    pub question: String,
    /// What was asked, for people.
    pub asked: String,
    /// What was seen.
    pub reading: Reading,
}

/// All that one decision was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// The version of the format.
    pub version: u32,
    /// The version of the program that decided.
    pub egressctl: String,
    /// The policy's name.
    pub policy: PolicyName,
    /// Its kind.
    pub kind: Kind,
    /// Its file, in the order in which it is written.
    pub policy_file: Json,
    /// When the run began to look.
    pub at: Moment,
    /// Whether the policy was paused.
    pub paused: bool,
    /// What was remembered: the body of the state file.
    pub state: Value,
    /// When the machine was asked.
    pub looks: Vec<Look>,
    /// What was seen.
    pub observation: Vec<Seen>,
    /// What there was of the policy's own before.
    pub before: World,
    /// What was decided.
    pub decision: Decided,
    /// How the step ended, which a decision alone cannot tell.
    pub outcome: Report,
}

/// What tells a question from others: it is long, and of no use to people.
fn fingerprint(question: &Question, blank: &Blank) -> String {
    sha256(blank.text(&format!("{question:?}")).as_bytes())
}

/// The text of a bundle, in one line.
///
/// # Errors
/// When a value is none that JSON knows, or when what is blank in it is a word of the format itself, so
/// that nobody could read it.
pub fn text(
    report: &Report,
    witness: &Witness,
    kind: Kind,
    policy_file: &str,
    blank: &Blank,
) -> anyhow::Result<String> {
    let policy_file: Json = serde_json::from_str(policy_file)?;
    let seen = witness.readings.iter().map(|(question, reading)| Seen {
        question: fingerprint(question, blank),
        asked: crate::explain::asked(question),
        reading: reading.clone(),
    });
    let bundle = Bundle {
        version: VERSION,
        egressctl: env!("CARGO_PKG_VERSION").to_owned(),
        policy: report.policy.clone(),
        kind,
        policy_file: policy_file.clone(),
        at: witness.at.clone(),
        paused: witness.paused,
        state: witness.record.clone(),
        looks: witness.looks.clone(),
        observation: seen.collect(),
        before: witness.before.clone(),
        decision: witness.decided.clone(),
        outcome: report.clone(),
    };
    let Value::Object(all) = blank.value(serde_json::to_value(&bundle)?) else {
        bail!("a bundle is an object");
    };
    let in_order = |(key, value): (String, Value)| {
        let is_policy = key == "policy_file";
        let value = if is_policy { blank.json(policy_file.clone()) } else { Json::Plain(value) };
        (key, value)
    };
    let text = serde_json::to_string(&Object(all.into_iter().map(in_order).collect()))?;
    match Bundle::parse(&text) {
        Ok(_) => Ok(text),
        Err(why) => bail!(
            "a secret of the policy is a word of the bundle's own, which would be blank there too \
             and read by nobody ({why}): use a longer one"
        ),
    }
}

impl Bundle {
    /// Reads a bundle.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("is no bundle: {error}"))?;
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if version > u64::from(VERSION) => Err(format!(
                "has format version {version}, newer than {VERSION}: use the newer egressctl"
            )),
            // As text, for what is read keeps its order then.
            Some(_) => serde_json::from_str(text)
                .map_err(|error| harmless(&format!("is not understood: {error}: record it again"))),
            None => Err("is no bundle: `step --record FILE` writes one".to_owned()),
        }
    }
}
