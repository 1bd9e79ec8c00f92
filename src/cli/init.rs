//! `egressctl init`: a policy made from what is here.
//!
//! **Invariant:** the policy alone goes to standard output, so that it can be written into a file;
//! every guess goes to standard error.

use super::{InitArgs, Places, complain, say};
use crate::host::examine::init::here;
use crate::init::draft;
use crate::outcome::Exit;

/// Prints a policy, or what there would have to be for one.
pub(super) fn init(places: &Places, args: &InitArgs) -> u8 {
    let policies = places.find(&[]).into_iter().flatten();
    let policies = policies.map(|found| (found.name, found.policy)).collect();
    match draft(&args.kind, &here(&args.configs, args.core_config.as_deref(), policies)) {
        Ok(draft) => {
            for guess in &draft.guesses {
                complain(&format!("guess: {guess}"));
            }
            say(&draft.text);
            Exit::Fine.code()
        }
        Err(why) => {
            complain(&format!("init {}: {why}", args.kind));
            Exit::Invalid.code()
        }
    }
}
