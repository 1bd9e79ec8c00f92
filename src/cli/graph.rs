//! `egressctl graph`.

use super::kind::{self, Manner, Work};
use super::{GraphArgs, Places, Taken, complain, say};
use crate::graph::{Graph, Place};
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::machine::Machine;
use crate::outcome::Exit;
use crate::policy::Kind;
use crate::record::Record;
use crate::step::Order;

/// A picture is drawn of any policy at any time.
const MANNER: Manner = Manner { adopt: true, now: true };

/// Prints the picture of a kind, or of a policy.
pub(super) fn graph(places: &Places, args: &GraphArgs) -> u8 {
    let kind: Option<Kind> =
        serde_json::from_value(serde_json::Value::String(args.shown.clone())).ok();
    let graph = match kind {
        Some(kind) => {
            Graph { title: format!("kind {kind}"), edges: kind::edges(kind), places: Vec::new() }
        }
        None => match of_policy(places, &args.shown) {
            Ok(graph) => graph,
            Err(exit) => return exit.code(),
        },
    };
    say(graph.draw(args.format).trim_end());
    Exit::Fine.code()
}

/// The picture of a policy.
fn of_policy(places: &Places, wanted: &str) -> Result<Graph, Exit> {
    let state_dir = places.state_dir();
    let found = places.find(&[wanted.to_owned()]).pop().ok_or(Exit::Invalid)?;
    let taken = Taken::of(found, &state_dir).ok_or(Exit::Invalid)?;
    let places = kind::with(&taken.found, &state_dir, MANNER, Stands).map_err(|why| {
        complain(&why);
        Exit::Failed
    })?;
    let kind = taken.found.policy.kind();
    let title = format!("{} ({kind})", taken.found.name);
    Ok(Graph { title, edges: kind::edges(kind), places })
}

struct Stands;

impl Work for Stands {
    type Done = Result<Vec<Place>, String>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        let folder = Folder::new(order.state_dir, order.name.clone());
        match read_only::<Record<M::State>>(&folder, M::KIND.as_str()) {
            ReadOnly::Newer { found, known } => Err(format!(
                "state of {} has format version {found}, newer than {known}: use the newer egressctl",
                order.name
            )),
            ReadOnly::Seen { loaded, .. } => {
                let state = loaded.body().and_then(|record| record.machine.as_ref());
                Ok(state.map(M::places).unwrap_or_default())
            }
        }
    }
}
