//! From what is and what is wished to what to do.
//!
//! The same function heals drift, carries out decisions, rebuilds after a reboot, and makes the
//! undo, which is the difference between now and the backup.
//!
//! **Invariant:** `diff(x, x)` is empty, and applying `diff(a, b)` to `a` gives `b`.

use super::{NftTable, Tunnel, World};
use crate::iproute::{Route, Rule, RuleAction};
use crate::names::{Interface, Mark};
use crate::plan::{Action, Backend, Phase, Step};

/// How tunnels are made and configured, which a world does not say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Means {
    /// Who implements tunnels.
    pub backend: Backend,
    /// The program that configures them.
    pub tool: String,
}

/// The steps from `actual` to `desired`.
#[must_use]
pub fn diff(actual: &World, desired: &World, means: &Means) -> Vec<Step> {
    let present = actual;
    let actual = &answering(actual);
    let mut steps = Vec::new();
    // What is not wished any more goes before what closes behind it, so that nothing comes in
    // through a tunnel whose nft rules are gone. What does not answer is removed like the rest.
    for (interface, present) in &present.tunnels {
        if !desired.tunnels.contains_key(interface) {
            // Keys that come up elsewhere are down here first: the server of a pair that is up twice
            // answers now the one and now the other.
            let moves = gives_its_keys(interface, present, desired);
            steps.push(Step {
                phase: if moves { Phase::Build } else { Phase::Clear },
                action: Action::RemoveTunnel {
                    interface: interface.clone(),
                    backend: means.backend.clone(),
                },
                // Its settings and routes go with its device and have to come back with it.
                undo: make_tunnel(interface, present, means)
                    .into_iter()
                    .chain(settings_of(actual, interface))
                    .chain(routes_by(actual, interface).cloned().map(Action::ReplaceRoute))
                    .collect(),
            });
        }
    }
    let gives = |interface: &Interface| {
        let present = actual.tunnels.get(interface);
        present.is_some_and(|present| gives_its_keys(interface, present, desired))
    };
    let (first, then): (Vec<_>, Vec<_>) =
        desired.tunnels.iter().partition(|(interface, _)| gives(interface));
    for (interface, wished) in first.into_iter().chain(then) {
        build_tunnel(interface, actual.tunnels.get(interface), wished, means, &mut steps);
    }
    aim(actual, desired, means, &mut steps);
    // Settings are there before what needs them, and go back after it: without `src_valid_mark` the
    // replies of clients are dropped while a rule still closes them in.
    let closing = actual.nft.is_some() && desired.nft.is_none();
    if !closing {
        sysctls(Phase::Build, actual, desired, &mut steps);
    }
    routes(actual, desired, &mut steps);
    nft_table(actual.nft.as_ref(), desired.nft.as_ref(), &mut steps);
    rules(actual, desired, &mut steps);
    if closing {
        sysctls(Phase::Clear, actual, desired, &mut steps);
    }
    // A stable sort: within a phase the order above stands.
    steps.sort_by_key(|step| step.phase);
    steps
}

/// Whether a tunnel's pair of keys is to come up on another interface.
fn gives_its_keys(interface: &Interface, present: &Tunnel, desired: &World) -> bool {
    let pair = |tunnel: &Tunnel| tunnel.ends.as_ref().map(|ends| (ends.own, ends.peer));
    let has = pair(present);
    has.is_some()
        && desired.tunnels.iter().any(|(other, tunnel)| other != interface && pair(tunnel) == has)
}

/// The world without the tunnels that do not answer: a dead one is made anew, and its routes and
/// settings go with its device.
fn answering(world: &World) -> World {
    let mut world = world.clone();
    let dead: Vec<Interface> = world
        .tunnels
        .iter()
        .filter(|(_, tunnel)| !tunnel.answers)
        .map(|(interface, _)| interface.clone())
        .collect();
    for interface in dead {
        world.tunnels.remove(&interface);
        world.routes.retain(|route| route.dev.as_deref() != Some(interface.as_str()));
        let settings = format!("/{interface}/");
        world.sysctls.retain(|path, _| !path.contains(&settings));
    }
    world
}

/// All commands that make a tunnel from nothing.
fn make_tunnel(interface: &Interface, tunnel: &Tunnel, means: &Means) -> Vec<Action> {
    let mut actions =
        vec![Action::CreateTunnel { interface: interface.clone(), backend: means.backend.clone() }];
    actions.extend(configure(interface, tunnel, means));
    actions.extend(
        tunnel
            .addresses
            .iter()
            .map(|address| Action::AddAddress { interface: interface.clone(), address: *address }),
    );
    actions.push(Action::LinkUp { interface: interface.clone(), mtu: tunnel.mtu });
    actions
}

/// The command that gives a tunnel its keys. A tunnel that state does not know cannot be put back.
fn configure(interface: &Interface, tunnel: &Tunnel, means: &Means) -> Option<Action> {
    let config = tunnel.config.clone()?;
    let endpoint = tunnel.ends.as_ref()?.endpoint?;
    Some(Action::Configure {
        interface: interface.clone(),
        config,
        endpoint,
        listen_port: tunnel.listen_port,
        fwmark: tunnel.fwmark,
        tool: means.tool.clone(),
    })
}

fn build_tunnel(
    interface: &Interface,
    present: Option<&Tunnel>,
    wished: &Tunnel,
    means: &Means,
    steps: &mut Vec<Step>,
) {
    let remove =
        Action::RemoveTunnel { interface: interface.clone(), backend: means.backend.clone() };
    let mut push = |action, undo| steps.push(Step { phase: Phase::Build, action, undo });
    let configured = match (present.and_then(|t| t.ends.as_ref()), &wished.ends) {
        (Some(now), Some(then)) => {
            now.same(then) && present.and_then(|tunnel| tunnel.fwmark) == wished.fwmark
        }
        (None | Some(_), None) => true,
        (None, Some(_)) => false,
    };
    if present.is_none() {
        push(
            Action::CreateTunnel { interface: interface.clone(), backend: means.backend.clone() },
            vec![remove.clone()],
        );
    }
    let port = present.map_or(wished.listen_port, |tunnel| tunnel.listen_port);
    let wished_on_port = Tunnel { listen_port: port, ..wished.clone() };
    if !configured && let Some(action) = configure(interface, &wished_on_port, means) {
        let undo = present
            .and_then(|tunnel| configure(interface, tunnel, means))
            .unwrap_or_else(|| remove.clone());
        push(action, vec![undo]);
    }
    let none = std::collections::BTreeSet::new();
    let present_addresses = present.map_or(&none, |tunnel| &tunnel.addresses);
    // New before old: removing a device's last address would wipe its routes in all tables.
    for address in wished.addresses.difference(present_addresses) {
        // What is new goes as a whole.
        let undo = if present.is_none() {
            remove.clone()
        } else {
            Action::RemoveAddress { interface: interface.clone(), address: *address }
        };
        push(Action::AddAddress { interface: interface.clone(), address: *address }, vec![undo]);
    }
    for address in present_addresses.difference(&wished.addresses) {
        push(
            Action::RemoveAddress { interface: interface.clone(), address: *address },
            vec![Action::AddAddress { interface: interface.clone(), address: *address }],
        );
    }
    if present.is_none_or(|tunnel| tunnel.mtu != wished.mtu || !tunnel.up) {
        let undo = present.map_or(remove, |tunnel| Action::LinkUp {
            interface: interface.clone(),
            mtu: tunnel.mtu,
        });
        push(Action::LinkUp { interface: interface.clone(), mtu: wished.mtu }, vec![undo]);
    }
}

/// Tunnels that stay, and run inside one that does not stay as it is, or by an uplink with another
/// address than before. A daemon remembers from which
/// address it reached its peer, and goes on from it for a quarter of a minute when it is gone.
fn aim(actual: &World, desired: &World, means: &Means, steps: &mut Vec<Step>) {
    let changed = |device: &Interface, steps: &[Step]| {
        steps.iter().any(|step| step.action.interface() == Some(device))
    };
    let mut aimed = Vec::new();
    for (interface, tunnel) in &desired.tunnels {
        let outer = tunnel.fwmark.and_then(|mark| led_by(desired, mark));
        let is_led_anew = outer.is_some_and(|outer| changed(&outer, steps));
        let present = actual.tunnels.get(interface).and_then(|present| present.ends.as_ref());
        let Some(ends) = present else { continue };
        let Some(endpoint) = ends.endpoint else { continue };
        let is_due = is_led_anew || desired.aims.contains(interface);
        if changed(interface, steps) || !is_due {
            continue;
        }
        let action = Action::Aim {
            interface: interface.clone(),
            peer: ends.peer,
            endpoint,
            tool: means.tool.clone(),
        };
        aimed.push(Step { phase: Phase::Build, undo: vec![action.clone()], action });
    }
    steps.extend(aimed);
}

/// The device that our rules and routes lead a mark to.
fn led_by(world: &World, mark: Mark) -> Option<Interface> {
    let led = world.rules.iter().find_map(|rule| match rule.action {
        RuleAction::Lookup(table) if rule.fwmark == Some((mark.0, u32::MAX)) => Some(table),
        RuleAction::Lookup(_) | RuleAction::Unreachable | RuleAction::Other(_) => None,
    })?;
    let way = world.routes.iter().find(|route| route.table == led && route.dev.is_some())?;
    Interface::try_from(way.dev.clone()?).ok()
}

/// Whether a setting is of a tunnel of that world: its folder, or one above it, is called like it.
fn is_of_a_tunnel(path: &str, world: &World) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    let named = folders.split('/').skip(1).map(str::to_owned).map(Interface::try_from);
    named.flatten().any(|name| world.tunnels.contains_key(&name))
}

fn sysctls(phase: Phase, actual: &World, desired: &World, steps: &mut Vec<Step>) {
    for (path, value) in &desired.sysctls {
        let now = actual.sysctls.get(path);
        // A setting that is not there is of a tunnel that the plan makes, or of a device that is
        // gone, which has nothing to be given back.
        if now != Some(value) && (now.is_some() || is_of_a_tunnel(path, desired)) {
            let back = now.unwrap_or(value).clone();
            steps.push(Step {
                phase,
                action: Action::Sysctl { path: path.clone(), value: value.clone() },
                undo: vec![Action::Sysctl { path: path.clone(), value: back }],
            });
        }
    }
}

fn routes(actual: &World, desired: &World, steps: &mut Vec<Step>) {
    // Guards first: a table must not be without its `unreachable` while its route is missing.
    let mut missing: Vec<&Route> = desired.routes.difference(&actual.routes).collect();
    missing.sort_by_key(|route| route.dev.is_some());
    for route in missing {
        let replaced = actual.routes.iter().find(|other| same_place(other, route));
        steps.push(Step {
            phase: Phase::Build,
            action: Action::ReplaceRoute(route.clone()),
            undo: vec![replaced.map_or_else(
                || Action::DeleteRoute(route.clone()),
                |other| Action::ReplaceRoute(other.clone()),
            )],
        });
    }
    for route in actual.routes.difference(&desired.routes) {
        let replaced = desired.routes.iter().any(|other| same_place(other, route));
        let device_goes = actual.tunnels.keys().any(|name| {
            route.dev.as_deref() == Some(name.as_str()) && !desired.tunnels.contains_key(name)
        });
        if !replaced && !device_goes {
            steps.push(Step {
                phase: Phase::Clear,
                action: Action::DeleteRoute(route.clone()),
                undo: vec![Action::ReplaceRoute(route.clone())],
            });
        }
    }
}

/// Routes that leave by a device.
fn routes_by<'a>(world: &'a World, device: &Interface) -> impl Iterator<Item = &'a Route> {
    let device = device.as_str().to_owned();
    world.routes.iter().filter(move |route| route.dev.as_deref() == Some(device.as_str()))
}

/// What gives a device that was made anew the settings that it has.
fn settings_of<'a>(world: &'a World, device: &Interface) -> impl Iterator<Item = Action> + 'a {
    let of_device = format!("/{device}/");
    world
        .sysctls
        .iter()
        .filter(move |(path, _)| path.contains(&of_device))
        .map(|(path, value)| Action::Sysctl { path: path.clone(), value: value.clone() })
}

/// Whether `ip route replace` of one puts it in the place of the other.
fn same_place(a: &Route, b: &Route) -> bool {
    a.family == b.family
        && a.table == b.table
        && a.destination == b.destination
        && a.metric == b.metric
}

fn nft_table(actual: Option<&NftTable>, desired: Option<&NftTable>, steps: &mut Vec<Step>) {
    match (actual, desired) {
        (Some(now), Some(then)) if now.same(then) => {}
        (None, None) => {}
        (now, Some(then)) => {
            let undo = now.map_or_else(
                || Action::DropNft { table: then.name.clone() },
                |now| Action::LoadNft { table: now.name.clone(), text: now.text.clone() },
            );
            steps.push(Step {
                phase: Phase::Place,
                action: Action::LoadNft { table: then.name.clone(), text: then.text.clone() },
                undo: vec![undo],
            });
        }
        (Some(now), None) => steps.push(Step {
            // After the rules: as long as a rule stands, the barrier behind it does.
            phase: Phase::Clear,
            action: Action::DropNft { table: now.name.clone() },
            undo: vec![Action::LoadNft { table: now.name.clone(), text: now.text.clone() }],
        }),
    }
}

fn rules(actual: &World, desired: &World, steps: &mut Vec<Step>) {
    let add = |rule: &Rule| Step {
        phase: Phase::Place,
        action: Action::AddRule(rule.clone()),
        undo: vec![Action::DeleteRule(rule.clone())],
    };
    let delete = |phase, rule: &Rule| Step {
        phase,
        action: Action::DeleteRule(rule.clone()),
        undo: vec![Action::AddRule(rule.clone())],
    };
    let mut missing: Vec<&Rule> = desired.rules.difference(&actual.rules).collect();
    // Ascending, so that what stays open is there before what closes; nft closes meanwhile.
    missing.sort_by_key(|rule| rule.priority);
    let surplus: Vec<&Rule> = actual.rules.difference(&desired.rules).collect();
    steps.extend(missing.into_iter().map(add));
    // With the table staying, a moved user's old rule goes at once; with the table going, all go in
    // order of priority, the closing ones last, before the table.
    let phase = if desired.nft.is_some() { Phase::Place } else { Phase::Clear };
    let at = steps.iter().position(|step| matches!(step.action, Action::DropNft { .. }));
    let deletions = surplus.into_iter().map(|rule| delete(phase, rule));
    match at {
        Some(at) => {
            let tail = steps.split_off(at);
            steps.extend(deletions);
            steps.extend(tail);
        }
        None => steps.extend(deletions),
    }
}
