//! `egressctl replay`: decides again on what a step has recorded.
//!
//! **Invariant:** the bundle is read, and nothing else is touched.

use super::{ReplayArgs, complain, kind, say};
use crate::bundle::{Bundle, Replayed};
use crate::explain::Preview;
use crate::host::policies::read_text;
use crate::outcome::Exit;
use crate::policy::Policy;
use serde_json::json;

/// Prints each decision of a file again, and in what it differs.
pub(super) fn replay(args: &ReplayArgs) -> u8 {
    let shown = args.bundle.display();
    let text = match read_text(&args.bundle) {
        Ok(text) => text,
        Err(why) => {
            complain(&format!("bundle {shown} {why}"));
            return Exit::Invalid.code();
        }
    };
    let mut worst = Exit::Fine;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let one = Bundle::parse(line).and_then(|bundle| Ok((again(&bundle)?, bundle)));
        match one {
            Ok((replayed, bundle)) => worst = worst.max(show(&replayed, &bundle, args.json)),
            Err(why) => {
                complain(&format!("bundle {shown}: {why}"));
                worst = worst.max(Exit::Invalid);
            }
        }
    }
    if text.trim().is_empty() {
        complain(&format!("bundle {shown} is empty: `step --record FILE` writes one"));
        worst = Exit::Invalid;
    }
    worst.code()
}

/// Decides again.
fn again(bundle: &Bundle) -> Result<Replayed, String> {
    let policy = Policy::parse(&bundle.policy_file.to_string())
        .map_err(|fault| format!("its policy: {fault}"))?;
    kind::replay(&policy, bundle)
}

/// Prints a decision, and whether it is the recorded one.
fn show(replayed: &Replayed, bundle: &Bundle, json: bool) -> Exit {
    let is_same = replayed.differences.is_empty();
    let exit = if is_same { Exit::Fine } else { Exit::Failed };
    if json {
        say(&json!({
            "policy": bundle.policy, "kind": bundle.kind, "recorded_by": bundle.egressctl,
            "same": is_same, "differences": replayed.differences,
            "decision": replayed.decided, "explain": replayed.explain, "outcome": bundle.outcome,
        })
        .to_string());
        return exit;
    }
    if let Some(decided) = replayed.decided.clone() {
        let preview = Preview {
            policy: bundle.policy.clone(),
            from: decided.from,
            to: decided.to,
            reasons: decided.reasons,
            steps: decided.steps,
            checks: decided.checks,
            explain: replayed.explain.clone(),
        };
        say(&preview.to_string());
    }
    if is_same {
        say("the decision is the recorded one");
    } else {
        say(&format!(
            "the decision differs from the one that egressctl {} recorded:",
            bundle.egressctl
        ));
        for difference in &replayed.differences {
            say(&format!("  {}", crate::outcome::harmless(difference)));
        }
    }
    say(&format!("what became of it then: {}", bundle.outcome));
    exit
}
