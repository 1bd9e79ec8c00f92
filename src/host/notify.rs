//! Tells programs and services, each within its time.
//!
//! **Invariant:** a message is over at its deadline, whatever who is told does; no failure names an
//! address, a token or a byte of them.

use super::exec::{Call, run};
use super::files::{keep_in_step, read_bounded};
use super::http::{self, Ask, Parcel, Verb, Via};
use super::{environment, resolve, secret};
use crate::names::PolicyName;
use crate::notice::{Ledger, letter};
use crate::outcome::Report;
use crate::policy::notify::{Sink, Webhook};
use crate::url::Target;
use anyhow::{Context as _, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A program that tells somebody has work of a moment, and the next step waits for it.
const EXEC_DEADLINE: Duration = Duration::from_secs(10);

/// A resolver that works answers from near by.
const NAMES_DEADLINE: Duration = Duration::from_secs(2);

/// A ledger has some moments.
const MAX_LEDGER: usize = 64 * 1024;

/// A bundle of certificates of a whole system has 220 KiB.
const MAX_CERTIFICATES: usize = 1024 * 1024;

/// What a service says beside its status is not looked at.
const MAX_BODY: usize = 0;

/// Tells one.
///
/// # Errors
/// Why it was not told, in words that hold no secret.
pub fn tell(sink: &Sink, report: &Report, text: &str) -> anyhow::Result<()> {
    let told = match sink {
        Sink::Exec(words) => exec(words, report, text),
        Sink::Webhook(hook) => webhook(hook, report, text),
    };
    told.with_context(|| format!("{} was not told: {sink}", report.policy))
}

fn exec(words: &[String], report: &Report, text: &str) -> anyhow::Result<()> {
    let Some((program, args)) = words.split_first() else { bail!("no program is named") };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let state = |state: &Option<String>| state.clone().unwrap_or_default();
    let env = vec![
        ("EGRESSCTL_TEXT", text.to_owned()),
        ("EGRESSCTL_POLICY", report.policy.to_string()),
        ("EGRESSCTL_KIND", report.kind.clone()),
        ("EGRESSCTL_FROM", state(&report.from)),
        ("EGRESSCTL_TO", state(&report.to)),
        ("EGRESSCTL_OUTCOME", report.outcome.as_str().to_owned()),
    ];
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    run(&Call::new(program, &args, EXEC_DEADLINE).with_stdin(line).with_env(env))?;
    Ok(())
}

fn webhook(hook: &Webhook, report: &Report, text: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    let url = address(hook)?;
    let token = hook.token_file.as_deref().map(secret::secret).transpose()?;
    let roots = match &hook.ca_file {
        None => Vec::new(),
        Some(path) => read_bounded(path, MAX_CERTIFICATES)
            .map_err(|why| why.to_string())
            .and_then(|pem| http::certificates(&pem))
            .map_err(|why| anyhow::anyhow!("ca_file {}: {why}", path.display()))?,
    };
    let letter = letter(hook.template, report, text, token.as_deref(), hook.chat.as_deref());
    let host = url.host().to_owned();
    let deadline = NAMES_DEADLINE.min(hook.timeout());
    let addresses = resolve::resolve(std::slice::from_ref(&host), deadline)
        .remove(&host)
        .unwrap_or_else(|| Err("no answer".to_owned()))
        .map_err(|why| anyhow::anyhow!("its name is not found: {why}"))?;
    let headers: Vec<(&str, &str)> =
        letter.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ask = Ask {
        url: url.as_str(),
        via: Via::Main,
        timeout: hook.timeout().saturating_sub(begun.elapsed()).max(Duration::from_millis(1)),
        max_body: MAX_BODY,
        addresses: &addresses,
    };
    let parcel = Parcel { verb: Verb::Post, headers: &headers, body: Some(&letter.body) };
    let answer = http::send_trusting(&ask, &parcel, &roots)?;
    ensure!(
        (200..300).contains(&answer.status),
        "it answered {}{}",
        answer.status,
        if answer.location.is_some() { ", a redirect, which is not followed" } else { "" }
    );
    Ok(())
}

/// The address, which the file holds on its only line.
fn address(hook: &Webhook) -> anyhow::Result<Target> {
    let text = secret::secret(&hook.url_file)?;
    // What is wrong with an address says which, and it is the secret.
    Target::try_from(text).map_err(|why| anyhow::anyhow!("{}: {why}", hook.url_file.display()))
}

/// Why one could not be told, if it is so, and the command that mends it. Nobody is told anything.
#[must_use]
pub fn unusable(sink: &Sink) -> Option<(String, String)> {
    match sink {
        Sink::Exec(words) => {
            let program = words.first()?;
            let is_there = super::exec::is_program(Path::new(program));
            (!is_there).then(|| {
                let why = format!("notify: {program} is not an executable file");
                (why, format!("chmod 755 {program}, once it is there"))
            })
        }
        Sink::Webhook(hook) => {
            let shown = hook.url_file.display();
            if let Err(why) = address(hook) {
                return Some((format!("notify: {why:#}"), format!("write the URL into {shown}")));
            }
            let path = hook.token_file.as_deref()?;
            let why = secret::secret(path).err()?;
            let mend = format!("write the token into {}", path.display());
            Some((format!("notify: {why:#}"), mend))
        }
    }
}

/// Which files of one who is told hold secrets that other users of the machine can read.
#[must_use]
pub fn open_secrets(sink: &Sink) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let Sink::Webhook(hook) = sink else { return Vec::new() };
    let files = [Some(&hook.url_file), hook.token_file.as_ref()];
    let is_open =
        |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|seen| seen.mode() & 0o077 != 0);
    files.into_iter().flatten().filter(is_open).cloned().collect()
}

/// What this machine is called in messages.
#[must_use]
pub fn machine() -> String {
    let name = environment::machine();
    if name.is_empty() { "egressctl".to_owned() } else { name }
}

fn place(state_dir: &Path, policy: &PolicyName) -> PathBuf {
    state_dir.join(policy.as_str()).join("notified.json")
}

/// What was told of a policy lately; nothing, where that is not known.
#[must_use]
pub fn ledger(state_dir: &Path, policy: &PolicyName) -> Ledger {
    read_bounded(&place(state_dir, policy), MAX_LEDGER)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// Remembers what was told.
///
/// # Errors
/// When it cannot be written, as in a state folder that is not there.
pub fn remember(state_dir: &Path, policy: &PolicyName, ledger: &Ledger) -> anyhow::Result<()> {
    let bytes = serde_json::to_vec(ledger)?;
    keep_in_step(&place(state_dir, policy), Some(&bytes), 0o600)
}
