//! `egressctl status`.

use super::{Places, StatusArgs, complain, note, say};
use crate::host::clock;
use crate::host::policies::Found;
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::policy::{Kind, Policy};
use crate::pool::state::PoolState;
use crate::pool::status::{PoolStatus, status as pool_status};
use crate::record::Record;
use crate::status::Standing;
use std::path::Path;

/// Prints how things are, and gives the worst of it.
pub(super) fn status(places: &Places, args: &StatusArgs) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Standing::AsWished;
    let mut shown = Vec::new();
    let all = places.find(&args.wanted.policies);
    let several = all.len() > 1;
    for found in all {
        found.iter().for_each(note);
        match found
            .map_err(|unusable| unusable.to_string())
            .and_then(|found| one(&found, &state_dir))
        {
            Ok(status) => {
                worst = worst.max(status.standing);
                shown.push(status);
            }
            Err(why) => {
                complain(&why);
                worst = worst.max(Standing::Stale);
            }
        }
    }
    if args.json {
        let text = match shown.as_slice() {
            _ if several => serde_json::to_string(&shown),
            [one] => serde_json::to_string(one),
            // What is wrong with the only policy has been said.
            _ => return worst.code(),
        };
        match text {
            Ok(text) => say(&text),
            Err(error) => complain(&format!("the status cannot be written: {error}")),
        }
    } else {
        for status in &shown {
            say(&status.to_string());
        }
    }
    worst.code()
}

fn one(found: &Found, state_dir: &Path) -> Result<PoolStatus, String> {
    let folder = Folder::new(state_dir, found.name.clone());
    let now = clock::now().map_err(|error| format!("{error:#}"))?;
    match &found.policy {
        Policy::Pool(policy) => {
            match read_only::<Record<PoolState>>(&folder, Kind::Pool.as_str()) {
                ReadOnly::Newer { found: version, known } => Err(format!(
                    "state of {} has format version {version}, newer than {known}: use the newer egressctl",
                    found.name
                )),
                ReadOnly::Seen { loaded, .. } => {
                    let record = loaded.body().cloned().unwrap_or_default();
                    Ok(pool_status(&found.name, policy, &record, &now))
                }
            }
        }
    }
}
