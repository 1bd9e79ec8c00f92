//! Which client leaves by which slot.
//!
//! **Invariant:** a client whose slot serves is never moved by another slot's failure or by another
//! client's arrival, and the loads after failures alone differ by at most one.

use super::state::Egress;
use crate::names::Interface;
use crate::policy::ClientKey;
use std::collections::{BTreeMap, BTreeSet};

/// Gives each client without a home one, the least loaded slot, the lowest first. Homes that are no
/// slots any more and clients that are no more are forgotten.
#[must_use]
pub fn homes(
    clients: &[ClientKey],
    slots: &[Interface],
    known: &BTreeMap<ClientKey, Interface>,
) -> BTreeMap<ClientKey, Interface> {
    let are_slots: BTreeSet<&Interface> = slots.iter().collect();
    let mut homes: BTreeMap<ClientKey, Interface> = clients
        .iter()
        .filter_map(|client| {
            let home = known.get(client).filter(|home| are_slots.contains(home))?;
            Some((client.clone(), home.clone()))
        })
        .collect();
    fill(clients, slots, &mut homes);
    homes
}

/// Places every client: home when home serves; else where it is while that serves; else on the least
/// loaded serving slot. With no slot serving, everybody stays where they are.
#[must_use]
pub fn place(
    clients: &[ClientKey],
    slots: &[Interface],
    serving: &[Interface],
    homes: &BTreeMap<ClientKey, Interface>,
    now: &BTreeMap<ClientKey, Egress>,
) -> BTreeMap<ClientKey, Egress> {
    if serving.is_empty() {
        return clients
            .iter()
            .map(|client| (client.clone(), now.get(client).cloned().unwrap_or(Egress::None)))
            .collect();
    }
    let are_serving: BTreeSet<&Interface> = serving.iter().collect();
    let mut placed: BTreeMap<ClientKey, Interface> = BTreeMap::new();
    for client in clients {
        let home = homes.get(client).filter(|home| are_serving.contains(home));
        let host = match now.get(client) {
            Some(Egress::Slot(slot)) if are_serving.contains(slot) => Some(slot),
            Some(Egress::Slot(_) | Egress::Direct | Egress::None) | None => None,
        };
        if let Some(slot) = home.or(host) {
            placed.insert(client.clone(), slot.clone());
        }
    }
    let ordered: Vec<Interface> =
        slots.iter().filter(|slot| are_serving.contains(slot)).cloned().collect();
    fill(clients, &ordered, &mut placed);
    placed.into_iter().map(|(client, slot)| (client, Egress::Slot(slot))).collect()
}

/// Gives each client that has none the least loaded of `slots`, the first of them on a tie.
fn fill(clients: &[ClientKey], slots: &[Interface], placed: &mut BTreeMap<ClientKey, Interface>) {
    let mut load: BTreeMap<&Interface, usize> = slots.iter().map(|slot| (slot, 0)).collect();
    for slot in placed.values() {
        if let Some(n) = load.get_mut(slot) {
            *n += 1;
        }
    }
    // The least loaded comes first, so that each client costs no search among all slots.
    let mut queue: BTreeSet<(usize, usize, &Interface)> =
        (0..).zip(slots).map(|(n, slot)| (load.get(slot).copied().unwrap_or(0), n, slot)).collect();
    for client in clients {
        if !placed.contains_key(client)
            && let Some((load, n, slot)) = queue.pop_first()
        {
            placed.insert(client.clone(), slot.clone());
            queue.insert((load.saturating_add(1), n, slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(n: usize) -> Vec<Interface> {
        (1..=n).map(|i| Interface::try_from(format!("vpn{i}")).unwrap()).collect()
    }

    fn clients(n: usize) -> Vec<ClientKey> {
        (1..=n).map(|i| ClientKey::try_from(format!("10.77.0.{i}")).unwrap()).collect()
    }

    fn loads(placed: &BTreeMap<ClientKey, Egress>) -> Vec<usize> {
        let mut loads: BTreeMap<&Egress, usize> = BTreeMap::new();
        for egress in placed.values() {
            *loads.entry(egress).or_default() += 1;
        }
        loads.into_values().collect()
    }

    #[test]
    fn slots_that_fall_one_after_the_other_leave_loads_within_one() {
        let (slots, clients) = (slots(5), clients(13));
        let homes = homes(&clients, &slots, &BTreeMap::new());
        let mut now = place(&clients, &slots, &slots, &homes, &BTreeMap::new());
        let mut serving = slots.clone();
        for dead in [2, 0, 2, 0] {
            serving.remove(dead);
            let next = place(&clients, &slots, &serving, &homes, &now);
            for (client, egress) in &now {
                if let Egress::Slot(slot) = egress
                    && serving.contains(slot)
                {
                    assert_eq!(next.get(client), Some(egress), "{client} was moved for nothing");
                }
            }
            let loads = loads(&next);
            assert_eq!(loads.iter().sum::<usize>(), 13);
            assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
            now = next;
        }
    }

    #[test]
    fn a_guest_goes_home_when_home_serves_again() {
        let (slots, clients) = (slots(3), clients(6));
        let homes = homes(&clients, &slots, &BTreeMap::new());
        let first = place(&clients, &slots, &slots, &homes, &BTreeMap::new());
        let without = place(&clients, &slots, &slots[1..], &homes, &first);
        assert_ne!(first, without);
        assert_eq!(place(&clients, &slots, &slots, &homes, &without), first);
    }

    #[test]
    fn a_new_client_moves_nobody_else() {
        let (slots, five) = (slots(3), clients(5));
        let homes_of_five = homes(&five, &slots, &BTreeMap::new());
        let six = clients(6);
        let homes_of_six = homes(&six, &slots, &homes_of_five);
        for (client, home) in &homes_of_five {
            assert_eq!(homes_of_six.get(client), Some(home));
        }
        assert_eq!(homes_of_six.len(), 6);
    }

    #[test]
    fn with_no_slot_serving_everybody_stays() {
        let (slots, clients) = (slots(2), clients(3));
        let homes = homes(&clients, &slots, &BTreeMap::new());
        let now = place(&clients, &slots, &slots, &homes, &BTreeMap::new());
        assert_eq!(place(&clients, &slots, &[], &homes, &now), now);
    }
}
