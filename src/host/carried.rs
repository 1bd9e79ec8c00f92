//! What devices have received, from `/proc/net/dev`.
//!
//! That file shows the devices of the network namespace that asks; `/sys` shows those of the one it
//! was mounted in.
//!
//! **Invariant:** a file that is not understood is an error, because it would else look like silence.

use super::clock;
use crate::names::Interface;
use crate::observation::{CarriedQuestion, CarriedReading};
use anyhow::Context as _;
use std::collections::BTreeMap;

/// Looks.
///
/// # Errors
/// When the file or the clock cannot be read.
pub fn look(asked: &CarriedQuestion) -> anyhow::Result<CarriedReading> {
    let path = "/proc/net/dev";
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let all = received(&text).with_context(|| format!("{path} is not understood"))?;
    let wanted = all.into_iter().filter(|(name, _)| asked.devices.contains(name)).collect();
    Ok(CarriedReading { at: clock::now()?, received: wanted })
}

/// Packets that a device has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packets {
    /// Those that came in by it.
    pub(super) received: u64,
    /// Those that went out by it.
    pub(super) sent: u64,
}

/// What a device has carried; `None`: it is not there, or it cannot be read.
pub(super) fn packets(device: &Interface) -> Option<Packets> {
    packets_in(&std::fs::read_to_string("/proc/net/dev").ok()?, device)
}

/// The second and the tenth number of a device's line.
fn packets_in(text: &str, device: &Interface) -> Option<Packets> {
    text.lines().find_map(|line| {
        let (name, numbers) = line.rsplit_once(':')?;
        let mut numbers = numbers.split_whitespace().skip(1);
        let mine = name.trim() == device.as_str();
        let mut next = |skipped: usize| numbers.nth(skipped)?.parse().ok();
        mine.then_some(())?;
        Some(Packets { received: next(0)?, sent: next(7)? })
    })
}

/// The bytes that each device has received: two lines of headings, then a line a device of its name,
/// a colon, and numbers of which the first is that. `None`: it is not that.
fn received(text: &str) -> Option<BTreeMap<Interface, u64>> {
    let mut all = BTreeMap::new();
    for line in text.lines().skip(2) {
        let (name, numbers) = line.rsplit_once(':')?;
        let bytes = numbers.split_whitespace().next()?.parse().ok()?;
        // The kernel allows more names than a policy can say.
        if let Ok(name) = Interface::try_from(name.trim().to_owned()) {
            all.insert(name, bytes);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_behind_a_devices_name_is_what_it_received() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 1296       16    0    0    0     0          0         0     1296      16    0    0
  eth0:  42  318 0 0 0 0 0 0 7 12 0 0
eth0.5:7 1 0 0 0 0 0 0 0 0 0 0
";
        let all = received(text).unwrap();
        let of = |name: &str| all.get(&Interface::try_from(name.to_owned()).unwrap()).copied();
        assert_eq!(
            (of("lo"), of("eth0"), of("eth0.5"), of("ppp0")),
            (Some(1_296), Some(42), Some(7), None)
        );
        assert_eq!(received("a\nb\neth0 42\n"), None);
        let packets = |name: &str| packets_in(text, &Interface::try_from(name.to_owned()).unwrap());
        assert_eq!(packets("eth0"), Some(Packets { received: 318, sent: 12 }));
        assert_eq!(packets("eth0.5"), Some(Packets { received: 1, sent: 0 }));
        assert_eq!(packets("ppp0"), None);
    }
}
