//! What must hold of the kernel, command by command, when a step is carried out.
//!
//! The numbers are those of the invariants of the recovery plan.

use super::law::{broken, law};
use super::oracle::{End, Leaf};
use egressctl::kernel::World;
use egressctl::kernel::diff::diff;
use egressctl::kernel::nft::placement_in;
use egressctl::machine::Machine as _;
use egressctl::policy::ClientKey;
use egressctl::pool::Pool;
use egressctl::pool::state::{Content, Egress, PoolState, Transport};
use egressctl::simulate::packet::{Exit, Layers, new_flow};
use egressctl::simulate::{Lab, Outcome, Played, apply, same_world};
use std::collections::BTreeSet;

/// Asserts what must hold of the kernel, command by command, when the step is carried out.
pub fn lawful(lab: &Lab, leaf: &Leaf<'_>, played: &Played) {
    let means = Pool::means(&lab.policy);
    let is = &played.is;
    law!(leaf, diff(is, is, &means).is_empty(), "of diff", "diff(x, x) is not empty");
    law!(leaf, played.plan.iter().all(|step| !step.undo.is_empty()), "8", "a step has no undo");
    if leaf.end == End::True {
        // 8: all of it can be taken back; the world itself takes back what is refused or fails.
        let mut world = played.is.clone();
        for action in played.done.iter().rev().flat_map(|step| &step.undo) {
            if let Err(why) = apply(&mut world, action, &lab.files) {
                broken(leaf, &format!("law 8: {why}"));
            }
        }
        if let Err(why) = same_world(&world, &played.was) {
            broken(leaf, &format!("law 8: the undo is not whole: {why}"));
        }
    }
    let before = played.before.as_ref();
    let mut world = played.was.clone();
    closed(lab, leaf, before, &world);
    up_once(leaf, &world);
    for step in &played.done {
        if apply(&mut world, &step.action, &lab.files).is_err() {
            break;
        }
        closed(lab, leaf, before, &world);
        up_once(leaf, &world);
    }
    up_once(leaf, is);
    // 6: nor does the table send anybody into a lent slot.
    let after = &played.after;
    let lent = after.slots.iter().filter(|(_, slot)| matches!(slot.content, Content::Lent(_)));
    for (name, _) in lent {
        let mark = lab.policy.mark(lab.policy.index_of(name).unwrap());
        let placement = is.nft.as_ref().map(|table| placement_in(&table.text)).unwrap_or_default();
        law!(leaf, placement.values().all(|m| *m != mark), "6", "{name} is lent and marked");
    }
    at_rest(lab, leaf, played);
}

/// 14: no endpoint and no pair of keys is up twice, at no moment.
fn up_once(leaf: &Leaf<'_>, world: &World) {
    let mut up = BTreeSet::new();
    for ends in world.tunnels.values().filter_map(|tunnel| tunnel.ends.as_ref()) {
        law!(leaf, up.insert(&ends.peer), "14", "a peer is up twice");
    }
}

/// 17: no new flow of a client leaves by the WAN unless the machine has put the client there, or never
/// took it over.
fn closed(lab: &Lab, leaf: &Leaf<'_>, before: Option<&PoolState>, world: &World) {
    let after = leaf.after();
    let wan = lab.wan();
    for net in lab.policy.client_prefixes() {
        let client = ClientKey::Prefix(net.into());
        let free = |state: Option<&PoolState>| {
            let egress = state.and_then(|state| state.egress.get(&client));
            matches!(egress, None | Some(Egress::Direct))
        };
        if free(before) || free(Some(after)) || free(Some(&leaf.decision.wished.state)) {
            continue;
        }
        let leaks = new_flow(world, net, &wan, Layers::Both) == Exit::Wan;
        law!(leaf, !leaks, "17", "{client} leaves by the WAN in the middle of a step");
    }
}

/// 17 once more, when the step is over: each layer is closed when the other is gone, and clients are
/// where the state says.
fn at_rest(lab: &Lab, leaf: &Leaf<'_>, played: &Played) {
    let after = leaf.after();
    if played.outcome == Outcome::Held || leaf.end != End::True {
        return;
    }
    let wan = lab.wan();
    for net in lab.policy.client_prefixes() {
        let Some(egress) = after.egress.get(&ClientKey::Prefix(net.into())) else { continue };
        let exit = |layers| new_flow(&played.is, net, &wan, layers);
        let there = match egress {
            Egress::Slot(slot) if played.is.tunnels.contains_key(slot) => {
                Exit::Tunnel(slot.clone())
            }
            Egress::Direct => Exit::Wan,
            Egress::Slot(_) | Egress::None => Exit::Refused,
        };
        law!(leaf, exit(Layers::Both) == there, "17", "{net} goes by {:?}", exit(Layers::Both));
        law!(leaf, exit(Layers::RulesAlone) == Exit::Refused, "17", "open without the nft table");
        if *egress != Egress::Direct {
            law!(leaf, exit(Layers::NftAlone) == Exit::Refused, "17", "open without the rules");
        }
    }
    if let Some(Transport::Slot(slot)) = &after.bootstrap.transport {
        law!(leaf, played.is.tunnels.contains_key(slot), "6", "the way by {slot} is not there");
    }
}
