//! `egressctl schema`: JSON Schema of what people write and programs read.
//!
//! The schemas are kept by hand beside this file, a file a kind, and put together as text, so that
//! their order stays as it was written. They are of draft 7, which editors know best.
//!
//! **Invariant:** every kind of policy has a schema of its policy and one of its status; tests hold
//! them to the parser and to what status prints.

use super::say;
use crate::outcome::Exit;
use crate::policy::{Kind, site};

/// What is described.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Described {
    /// A policy file
    Policy,
    /// A state file
    State,
    /// What status prints as JSON
    Status,
}

/// Every kind of policy.
const KINDS: [Kind; 5] = [Kind::Pool, Kind::Selector, Kind::Guard, Kind::Dns, Kind::Chain];

/// What a policy of a kind may say.
fn policy_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Pool => include_str!("schema/policy/pool.json"),
        Kind::Selector => include_str!("schema/policy/selector.json"),
        Kind::Guard => include_str!("schema/policy/guard.json"),
        Kind::Dns => include_str!("schema/policy/dns.json"),
        Kind::Chain => include_str!("schema/policy/chain.json"),
    }
}

/// The tags and definitions of all that a file of the policy folder may be: a site is no policy.
fn files() -> Vec<(&'static str, &'static str)> {
    let kinds = KINDS.iter().map(|kind| (kind.as_str(), policy_of(*kind)));
    kinds.chain([(site::KIND, include_str!("schema/policy/site.json"))]).collect()
}

/// What the status of a kind says.
fn status_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Pool => include_str!("schema/status/pool.json"),
        Kind::Selector => include_str!("schema/status/selector.json"),
        Kind::Guard => include_str!("schema/status/guard.json"),
        Kind::Dns => include_str!("schema/status/dns.json"),
        Kind::Chain => include_str!("schema/status/chain.json"),
    }
}

/// Prints a schema.
pub(super) fn schema(described: Described) -> u8 {
    match described {
        Described::Policy => say(&policy()),
        Described::State => say(include_str!("schema/state.json").trim_end()),
        Described::Status => say(&status()),
    }
    Exit::Fine.code()
}

/// A policy of any kind. The kind is chosen by `if`, so that an editor tells of the one kind meant.
fn policy() -> String {
    let files = files();
    let tags: Vec<String> = files.iter().map(|(kind, _)| format!("\"{kind}\"")).collect();
    let choice = |(kind, _): &(&str, &str)| {
        format!(
            "    {{\n      \"if\": {{ \"properties\": {{ \"kind\": {{ \"const\": \"{kind}\" }} }} }},\n      \
             \"then\": {{ \"$ref\": \"#/definitions/{kind}\" }}\n    }}"
        )
    };
    let choices: Vec<String> = files.iter().map(choice).collect();
    let definitions: Vec<String> =
        files.iter().map(|(kind, text)| definition(kind, text)).collect();
    format!(
        "{{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",\n  \
         \"title\": \"A policy of egressctl\",\n  \
         \"description\": \"What egressctl is to keep up; egressctl-policy(5) is the manual.\",\n  \
         \"type\": \"object\",\n  \"required\": [\"kind\"],\n  \
         \"properties\": {{ \"kind\": {{ \"description\": \"The kind of policy.\", \"enum\": [{}] }} }},\n  \
         \"allOf\": [\n{}\n  ],\n  \"definitions\": {{\n{}\n  }}\n}}",
        tags.join(", "),
        choices.join(",\n"),
        definitions.join(",\n"),
    )
}

/// The status of one policy, or of several.
fn status() -> String {
    let references: Vec<String> =
        KINDS.iter().map(|kind| format!("{{ \"$ref\": \"#/definitions/{kind}\" }}")).collect();
    let one = references.join(", ");
    let of = |kind: &Kind| definition(kind.as_str(), status_of(*kind));
    let mut all: Vec<String> = KINDS.iter().map(of).collect();
    all.push(definition("head", include_str!("schema/status/head.json")));
    format!(
        "{{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",\n  \
         \"title\": \"What egressctl status --json prints\",\n  \
         \"description\": \"An object for one policy, an array for several.\",\n  \
         \"anyOf\": [{one}, {{ \"type\": \"array\", \"items\": {{ \"anyOf\": [{one}] }} }}],\n  \
         \"definitions\": {{\n{}\n  }}\n}}",
        all.join(",\n"),
    )
}

fn definition(name: &str, text: &str) -> String {
    format!("    \"{name}\": {}", text.trim_end().replace('\n', "\n    "))
}
