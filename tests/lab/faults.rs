//! What goes wrong on demand: endpoints that fail in their several ways, and a silent WAN.
//!
//! **Invariant:** a fault lives outside the gateway, and healing it leaves the world as it was before.

use super::provider::PORTAL_PORT;
use super::space::Space;
use super::{names, space};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The largest packet that passes on a path that eats large ones.
///
/// A full inner packet of MTU 1420 travels as 1480 bytes, one of MTU 1280 as 1340: a tunnel that is
/// narrowed to the least MTU works again.
const NARROW: usize = 1400;

/// One way in which an endpoint fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Dropped,
    Stopped,
    Blackhole,
    Portal,
    Narrow,
    Lossy,
}

/// The faults of one lab; a clone does to the same lab what it is told.
#[derive(Clone, Debug)]
pub struct Faults {
    isp: Space,
    prov: Space,
    now: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    endpoints: BTreeSet<(Fault, usize)>,
    silent: bool,
    walled: bool,
    deaf: bool,
}

impl Faults {
    /// Puts the rules in place, with nothing wrong yet.
    pub fn new(isp: &Space, prov: &Space) -> Self {
        isp.nft(&format!(
            "table inet faults {{\n\
             set dropped {{ type ipv4_addr; }}\nset narrow {{ type ipv4_addr; }}\nset lossy {{ type ipv4_addr; }}\nset silent {{ type ifname; }}\n\
             set walled {{ type ipv4_addr; }}\nset deaf {{ type ipv4_addr; }}\n\
             chain first {{ type filter hook prerouting priority raw; policy accept;\n iifname @silent drop\n}}\n\
             chain last {{ type filter hook postrouting priority srcnat + 100; policy accept;\n oifname @silent drop\n}}\n\
             chain between {{ type filter hook forward priority filter; policy accept;\n\
             meta l4proto udp ip daddr @dropped drop\nmeta l4proto udp ip saddr @dropped drop\n\
             meta l4proto udp ip daddr @lossy numgen random mod 100 < 30 drop\n\
             meta l4proto udp ip saddr @lossy numgen random mod 100 < 30 drop\n\
             iifname \"gw\" ip daddr @walled drop\niifname \"gw\" ip daddr @deaf drop\n\
             meta length > {NARROW} meta l4proto udp ip daddr @narrow drop\n\
             meta length > {NARROW} meta l4proto udp ip saddr @narrow drop\n}}\n}}\n"
        ));
        prov.nft(&format!(
            "table ip faults {{\n\
             set blackhole {{ type ifname; }}\nset portal {{ type ifname; }}\nset dropped {{ type ipv4_addr; }}\n\
             chain pre {{ type nat hook prerouting priority dstnat; policy accept;\n\
             iifname @portal tcp dport 80 redirect to :{PORTAL_PORT}\n}}\n\
             chain between {{ type filter hook forward priority filter; policy accept;\n\
             iifname @blackhole drop\noifname @blackhole drop\n}}\n\
             chain inside {{ type filter hook input priority filter; policy accept;\n\
             iifname @blackhole meta l4proto udp ip daddr 198.51.100.0/24 drop\n\
             iifname \"wg*\" meta l4proto udp ip daddr @dropped drop\n}}\n}}\n"
        ));
        Self { isp: isp.clone(), prov: prov.clone(), now: Arc::default() }
    }

    /// The tunnel's packets to and from endpoint `k` are dropped without a word, by the isp or inside another tunnel; its
    /// address still answers a ping.
    pub fn drop(&self, k: usize) {
        self.change(|state| state.endpoints.insert((Fault::Dropped, k)));
    }

    /// The next packet of the tunnel to endpoint `k` is lost, if it is as small as one that opens a connection.
    pub fn lose_one(&self, k: usize) {
        let to = names::endpoint(k);
        self.isp.nft(&format!(
            "add rule inet faults between meta l4proto udp ip daddr {to} quota until 150 bytes drop\n"
        ));
    }

    /// Thirty of a hundred packets of the tunnel to endpoint `k` are lost, and as many of those from it.
    pub fn lossy(&self, k: usize) {
        self.change(|state| state.endpoints.insert((Fault::Lossy, k)));
    }

    /// The server of endpoint `k` does not listen any more: its port answers unreachable.
    pub fn stop(&self, k: usize) {
        self.change(|state| state.endpoints.insert((Fault::Stopped, k)));
        self.link(k, "down");
    }

    /// The server of endpoint `k` shakes hands and forwards nothing, to no other endpoint either.
    pub fn blackhole(&self, k: usize) {
        self.change(|state| state.endpoints.insert((Fault::Blackhole, k)));
    }

    /// Every page that is asked for through endpoint `k` is a portal: status 200 and some HTML.
    pub fn portal(&self, k: usize) {
        self.change(|state| state.endpoints.insert((Fault::Portal, k)));
    }

    /// The path to endpoint `k` eats packets above 1,400 bytes and passes the others.
    pub fn mtu(&self, k: usize) {
        self.change(|state| state.endpoints.insert((Fault::Narrow, k)));
    }

    /// Whatever is wrong with endpoint `k` ends; a server that was stopped has forgotten its sessions.
    pub fn heal(&self, k: usize) {
        let mut stopped = false;
        self.change(|state| {
            stopped = state.endpoints.contains(&(Fault::Stopped, k));
            state.endpoints.retain(|(_, other)| *other != k);
            true
        });
        if stopped {
            self.link(k, "up");
        }
    }

    /// Nothing that the gateway sends gets beyond its WAN link, and nothing reaches it.
    pub fn wan_silent(&self) {
        self.change(|state| std::mem::replace(&mut state.silent, true));
    }

    /// The WAN carries packets again.
    pub fn wan_heal(&self) {
        self.change(|state| std::mem::replace(&mut state.silent, false));
    }

    /// Whether the WAN is silent now.
    pub fn wan_is_silent(&self) -> bool {
        self.now.lock().expect("no thread panicked").silent
    }

    /// The provider's list is reached from the endpoints and no longer by the gateway's own WAN.
    pub fn wall(&self) {
        self.change(|state| std::mem::replace(&mut state.walled, true));
    }

    /// The provider's list is reached by the WAN again.
    pub fn unwall(&self) {
        self.change(|state| std::mem::replace(&mut state.walled, false));
    }

    /// What the gateway asks past the tunnels does not answer any more; all else does.
    pub fn reference_dies(&self) {
        self.change(|state| std::mem::replace(&mut state.deaf, true));
    }

    fn link(&self, k: usize, way: &str) {
        let line = format!("link set wg{k} {way}\n");
        space::run(Command::new("ip").args(["-n", self.prov.name(), "-batch", "-"]), &line);
    }

    /// Changes what is wrong, and renders it into the sets of both namespaces.
    fn change(&self, how: impl FnOnce(&mut State) -> bool) {
        let mut state = self.now.lock().expect("no thread panicked");
        let _before = how(&mut state);
        let of = |fault: Fault| state.endpoints.iter().filter(move |(f, _)| *f == fault);
        let address = |(_, k): &(Fault, usize)| names::endpoint(*k).to_string();
        let device = |(_, k): &(Fault, usize)| format!("\"wg{k}\"");
        let silent = if state.silent { vec!["\"gw\"".to_owned()] } else { Vec::new() };
        let only = |set: bool, address: Ipv4Addr| {
            if set { vec![address.to_string()] } else { Vec::new() }
        };
        let isp = [
            set("inet", "walled", &only(state.walled, names::SOURCE)),
            set("inet", "deaf", &only(state.deaf, names::WAN_PROBE)),
            set("inet", "dropped", &of(Fault::Dropped).map(address).collect::<Vec<_>>()),
            set("inet", "narrow", &of(Fault::Narrow).map(address).collect::<Vec<_>>()),
            set("inet", "lossy", &of(Fault::Lossy).map(address).collect::<Vec<_>>()),
            set("inet", "silent", &silent),
        ];
        let prov = [
            set("ip", "blackhole", &of(Fault::Blackhole).map(device).collect::<Vec<_>>()),
            set("ip", "dropped", &of(Fault::Dropped).map(address).collect::<Vec<_>>()),
            set("ip", "portal", &of(Fault::Portal).map(device).collect::<Vec<_>>()),
        ];
        self.isp.nft(&isp.concat());
        self.prov.nft(&prov.concat());
    }
}

/// The nft lines that give a set of the table `faults` new elements, in one transaction.
fn set(family: &str, name: &str, elements: &[String]) -> String {
    let flush = format!("flush set {family} faults {name}\n");
    if elements.is_empty() {
        return flush;
    }
    format!("{flush}add element {family} faults {name} {{ {} }}\n", elements.join(", "))
}
