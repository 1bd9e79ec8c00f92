//! The nft text of a pool, loaded by the real nft in a network namespace of its own.

use egressctl::kernel::nft::{Layout, Six, SlotLayout, placement_in};
use egressctl::kernel::read::replacing;
use egressctl::names::{Interface, Mark};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

const DIRECT: Mark = Mark(0x4547_1000);

fn interface(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

fn mark(slot: u32) -> Mark {
    Mark(0x4547_0000 + slot)
}

/// Two slots, two clients and a prefix, as the example of the kernel layout has them.
fn plain() -> Layout {
    Layout {
        table: "egressctl_home".to_owned(),
        base: mark(0),
        slots: (0..)
            .zip(["vpn1", "vpn2"])
            .map(|(n, name)| {
                (
                    interface(name),
                    SlotLayout {
                        mark: mark(n),
                        mtu: Some(1_420),
                        addresses: [Ipv4Addr::from(0x0a40_0002 + n)].into(),
                        addresses6: [].into(),
                    },
                )
            })
            .collect(),
        other_tunnels: [interface("vpnt1")].into(),
        other_addresses: [].into(),
        lan: [interface("eth1")].into(),
        wan: interface("eth0"),
        local: vec!["10.77.0.0/24".parse().unwrap()],
        local6: Vec::new(),
        clients: ["10.77.0.11/32", "10.77.0.12/32", "10.77.0.16/29"]
            .iter()
            .map(|net| net.parse().unwrap())
            .collect(),
        placement: [
            ("10.77.0.11/32".parse().unwrap(), mark(0)),
            ("10.77.0.12/32".parse().unwrap(), mark(1)),
            ("10.77.0.16/29".parse().unwrap(), mark(0)),
        ]
        .into(),
        spread: BTreeMap::new(),
        users: BTreeMap::new(),
        block_ipv6: true,
        six: None,
        keep_inbound: true,
        masquerade: true,
        inside: [].into(),
    }
}

/// The same with IPv6 of a client and of a user by a mark, and of another user closed in.
fn by_slots(mut layout: Layout, mark: Mark) -> Layout {
    let net = "fd77::11/128".parse().unwrap();
    let six = Six {
        clients: vec![net, "fd77:1::/64".parse().unwrap()],
        placement: [(net, mark)].into(),
        users: [(999, Some(mark)), (998, None)].into(),
    };
    for (n, slot) in (1..).zip(layout.slots.values_mut()) {
        slot.addresses6 = [Ipv6Addr::new(0xfd64, 0, 0, n, 0, 0, 0, 2)].into();
    }
    Layout {
        local6: vec!["fd77::/64".parse().unwrap()],
        users: [(999, Some(mark)), (998, None)].into(),
        six: Some(six),
        ..layout
    }
}

fn layouts() -> Vec<(&'static str, Layout)> {
    let plain = plain();
    let spread_net = "10.78.0.0/22".parse().unwrap();
    let buckets = (0..256_u32).map(|n| (n % 7 != 0).then(|| mark(n % 2))).collect();
    let mut direct = plain.clone();
    direct.placement.values_mut().for_each(|mark| *mark = DIRECT);
    let mut spread_direct = plain.clone();
    spread_direct.clients.push(spread_net);
    spread_direct.spread.insert(spread_net, vec![Some(DIRECT); 256]);
    spread_direct.users.insert(999, Some(DIRECT));
    vec![
        ("plain", plain.clone()),
        (
            "spread",
            Layout {
                clients: [plain.clients.clone(), vec![spread_net]].concat(),
                spread: [(spread_net, buckets)].into(),
                ..plain.clone()
            },
        ),
        (
            "spread, all None",
            Layout {
                clients: [plain.clients.clone(), vec![spread_net]].concat(),
                spread: [(spread_net, vec![None; 256])].into(),
                ..plain.clone()
            },
        ),
        ("users", Layout { users: [(999, Some(mark(1))), (998, None)].into(), ..plain.clone() }),
        (
            "users alone",
            Layout {
                users: [(999, Some(mark(1)))].into(),
                clients: Vec::new(),
                placement: BTreeMap::new(),
                lan: [].into(),
                local: Vec::new(),
                ..plain.clone()
            },
        ),
        (
            "one-armed",
            Layout {
                lan: [interface("eth0")].into(),
                local6: vec!["fd00:77::/64".parse().unwrap()],
                ..plain.clone()
            },
        ),
        (
            "two LANs",
            Layout { lan: [interface("eth1"), interface("eth2")].into(), ..plain.clone() },
        ),
        (
            "no masquerade",
            Layout { masquerade: false, users: [(999, Some(mark(0)))].into(), ..plain.clone() },
        ),
        ("inside one another", Layout { inside: [mark(0), mark(1)].into(), ..plain.clone() }),
        ("IPv6 by slots", by_slots(plain.clone(), mark(1))),
        ("IPv6 on Direct", by_slots(plain.clone(), DIRECT)),
        (
            "IPv6 by slots, one-armed",
            Layout { lan: [interface("eth0")].into(), ..by_slots(plain.clone(), mark(0)) },
        ),
        ("IPv6 off", Layout { block_ipv6: false, ..plain.clone() }),
        ("no inbound", Layout { keep_inbound: false, ..plain.clone() }),
        ("Direct", direct),
        ("spread Direct", spread_direct),
        ("nobody placed", Layout { placement: BTreeMap::new(), ..plain }),
    ]
}

/// Who is placed in both families.
fn placed(layout: &Layout) -> BTreeMap<IpNet, Mark> {
    let four = layout.placement.iter().map(|(net, mark)| (IpNet::V4(*net), *mark));
    let six = layout.six.iter().flat_map(|six| &six.placement);
    four.chain(six.map(|(net, mark)| (IpNet::V6(*net), *mark))).collect()
}

/// A network namespace, removed in the end.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Self {
        let name = format!("egt{}{what}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status().unwrap();
        assert!(made.success(), "no namespace: these tests need root");
        Self(name)
    }

    fn nft(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.0, "nft"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn load(&self, text: &str) {
        self.nft(&["-f", "-"], text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }

    fn listing(&self, table: &str) -> String {
        self.nft(&["-s", "list", "table", "inet", table], "").unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _removed = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn every_layout_loads_and_its_listing_loads_to_itself() {
    let space = Namespace::new("a");
    for (what, layout) in layouts() {
        for (when, layout) in [("", layout.clone()), (" at boot", layout.at_boot())] {
            space.load(&layout.render());
            let listing = space.listing(&layout.table);
            assert_eq!(placement_in(&listing), placed(&layout), "{what}{when}:\n{listing}");
            space.load(&replacing(&layout.table, &listing));
            assert_eq!(space.listing(&layout.table), listing, "{what}{when}");
            space.load(&layout.render());
            assert_eq!(space.listing(&layout.table), listing, "{what}{when} again");
        }
    }
}

#[test]
fn the_placement_of_many_clients_reads_back_from_listing_and_text() {
    let space = Namespace::new("b");
    let mut layout = plain();
    let nets: Vec<ipnet::Ipv4Net> = (0..300_u32)
        .map(|n| Ipv4Addr::from(0x0a4d_0100 + n).into())
        .chain(["10.90.0.0/16".parse().unwrap(), "10.91.7.8/30".parse().unwrap()])
        .collect();
    layout.placement = nets.iter().zip(0_u32..).map(|(net, n)| (*net, mark(n % 2))).collect();
    layout.clients = nets;
    let text = layout.render();
    assert_eq!(placement_in(&text), placed(&layout), "as written");
    space.load(&text);
    assert_eq!(placement_in(&space.listing(&layout.table)), placed(&layout), "as listed");
}

#[test]
fn a_table_at_boot_lets_nobody_out_who_was_not_on_direct() {
    for (what, layout) in layouts() {
        let text = layout.at_boot().render();
        let direct = layout.anyone_direct();
        assert_eq!(text.contains(". \"eth0\""), direct, "{what}: a way by the WAN\n{text}");
        assert!(!text.contains("vpn"), "{what}: a tunnel that may be a stranger's\n{text}");
        assert!(text.contains("ip saddr @clients reject"), "{what}");
    }
}

#[test]
fn the_text_is_the_one_that_was_tried() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("nft_plain", plain().render()));
}
