//! Who is wired to whom, with which addresses and routes.
//!
//! **Invariant:** the isp has routes to the clients by the gateway alone, so that a packet that leaks without translation is answered, and seen, too.

use super::names;
use super::space::Space;
use std::fmt::Write;

/// The namespaces of a lab.
#[derive(Clone, Debug)]
pub struct Spaces {
    pub gw: Space,
    pub isp: Space,
    pub prov: Space,
    pub web: Space,
    pub lan: Space,
    pub clients: Vec<Space>,
    pub spread: Space,
}

impl Spaces {
    /// The names for a prefix.
    pub fn new(prefix: &str, clients: usize) -> Self {
        let space = |role: &str| Space::new(prefix, role);
        Self {
            gw: space("gw"),
            isp: space("isp"),
            prov: space("prov"),
            web: space("web"),
            lan: space("lan"),
            clients: (1..=clients).map(|k| space(&format!("c{k}"))).collect(),
            spread: space("spread"),
        }
    }

    /// The roles, as `Ground` wants them.
    pub fn roles(clients: usize) -> Vec<String> {
        let fixed = ["gw", "isp", "prov", "web", "lan", "spread"].map(str::to_owned);
        fixed.into_iter().chain((1..=clients).map(|k| format!("c{k}"))).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Space> {
        [&self.gw, &self.isp, &self.prov, &self.web, &self.lan, &self.spread]
            .into_iter()
            .chain(&self.clients)
    }
}

/// What a lab's gateway is like before anybody sets up tunnels on it, also after a reboot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    /// `rp_filter` is 1, else 2.
    pub strict: bool,
    /// The host has its own masquerade on the WAN, at the usual priority.
    pub masquerade: bool,
    /// Main has `0.0.0.0/1` and `128.0.0.0/1` by the WAN, as some VPN programs leave it.
    pub halves: bool,
}

impl Baseline {
    /// Puts the gateway's settings, routes and rules as they are at boot.
    pub fn apply(self, gw: &Space) {
        let reverse = if self.strict { "1" } else { "2" };
        gw.sysctls(&[
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/rp_filter", reverse),
            ("ipv4/conf/default/rp_filter", reverse),
            ("ipv4/conf/eth0/rp_filter", reverse),
            ("ipv4/conf/eth1/rp_filter", reverse),
            ("ipv4/conf/all/src_valid_mark", "0"),
            ("ipv4/conf/default/src_valid_mark", "0"),
            ("ipv4/conf/eth0/src_valid_mark", "0"),
            ("ipv4/conf/eth1/src_valid_mark", "0"),
            ("ipv4/conf/eth0/send_redirects", "1"),
            ("ipv4/conf/eth1/send_redirects", "1"),
        ]);
        let mut lines = String::from(
            "link set lo up\nlink set eth0 up\nlink set eth1 up\n\
             addr replace 203.0.113.2/24 dev eth0\naddr replace 2001:db8:113::2/64 dev eth0 nodad\n\
             addr replace 10.77.0.1/24 dev eth1\naddr replace 10.78.0.1/22 dev eth1\n\
             addr replace fd77::1/64 dev eth1 nodad\n\
             route replace default via 203.0.113.1\nroute replace default via 2001:db8:113::1\n",
        );
        if self.halves {
            lines.push_str("route replace 0.0.0.0/1 via 203.0.113.1\n");
            lines.push_str("route replace 128.0.0.0/1 via 203.0.113.1\n");
        }
        gw.batch(&lines);
        if self.masquerade {
            gw.nft(
                "table ip stranger {\nchain out { type nat hook postrouting priority srcnat; policy accept;\n\
                 oifname \"eth0\" masquerade\n}\n}\n",
            );
        }
    }
}

/// Wires everything and gives everybody addresses and routes.
pub fn build(spaces: &Spaces, baseline: Baseline) {
    for space in spaces.all() {
        // Without duplicate address detection IPv6 works at once.
        space.sysctls(&[
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/all/accept_dad", "0"),
            ("ipv6/conf/default/accept_ra", "0"),
        ]);
    }
    let mac = names::WAN_MAC.map(|byte| format!("{byte:02x}")).join(":");
    let link = |own: &str, peer: &str, to: &Space, address: &str| {
        format!("link add {own} type veth peer name {peer} {address} netns {}\n", to.name())
    };
    let wires = [
        link("gw", "eth0", &spaces.gw, &format!("address {mac}")),
        link("prov", "eth0", &spaces.prov, ""),
        link("web", "eth0", &spaces.web, ""),
    ];
    spaces.isp.batch(&wires.concat());
    let mut ports = String::from("link add br0 type bridge\nlink set br0 up\n");
    ports.push_str(&link("gw", "eth1", &spaces.gw, ""));
    ports.push_str(&link("spread", "eth0", &spaces.spread, ""));
    for (i, client) in spaces.clients.iter().enumerate() {
        ports.push_str(&link(&format!("c{}", i + 1), "eth0", client, ""));
    }
    let own = ["gw".to_owned(), "spread".to_owned()];
    for port in own.into_iter().chain((1..=spaces.clients.len()).map(|k| format!("c{k}"))) {
        writeln!(ports, "link set {port} master br0 up").expect("a string takes it");
    }
    spaces.lan.batch(&ports);
    // Each namespace is a process of its own, so they are set up side by side.
    std::thread::scope(|scope| {
        scope.spawn(|| baseline.apply(&spaces.gw));
        scope.spawn(|| internet(spaces));
        scope.spawn(|| lan(spaces));
    });
}

/// Gives the spread clients' namespace an uplink, so that it can be a gateway.
pub fn second_gateway(spaces: &Spaces) {
    let own = &spaces.spread;
    spaces.isp.batch(&format!(
        "link add gw2 type veth peer name eth1 netns {}\nlink set gw2 up\naddr add 172.16.0.1/24 dev gw2\n",
        own.name()
    ));
    own.batch(
        "link set eth1 up\naddr add 172.16.0.2/24 dev eth1\naddr add 10.77.0.2/24 dev eth0\n\
         route replace default via 172.16.0.1\n",
    );
    own.sysctls(&[
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "2"),
        ("ipv4/conf/default/rp_filter", "2"),
        ("ipv4/conf/eth0/rp_filter", "2"),
        ("ipv4/conf/eth1/rp_filter", "2"),
    ]);
}

fn internet(spaces: &Spaces) {
    // A server's daemon that starts takes any port until it is told its own, which must not be another's.
    spaces.prov.sysctls(&[("ipv4/ip_local_reserved_ports", "51820-52100")]);
    for space in [&spaces.isp, &spaces.prov] {
        space.sysctls(&[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")]);
    }
    for space in [&spaces.isp, &spaces.prov, &spaces.web] {
        space.sysctls(&[("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0")]);
    }
    spaces.isp.batch(
        "link set lo up\nlink set gw up\nlink set prov up\nlink set web up\n\
         addr add 203.0.113.1/24 dev gw\naddr add 203.0.113.77/24 dev gw\n\
         addr add 198.51.100.1/24 dev prov\naddr add 192.0.2.1/24 dev web\n\
         addr add 2001:db8:113::1/64 dev gw nodad\naddr add 2001:db8:ff::1/64 dev web nodad\n\
         addr add 2001:db8:64::1/64 dev prov nodad\n\
         route add 10.77.0.0/24 via 203.0.113.2\nroute add 10.78.0.0/22 via 203.0.113.2\n\
         route add 10.99.0.0/24 via 192.0.2.2\n\
         route add fd77::/64 via 2001:db8:113::2\nroute add 2001:db8:2::/64 via 2001:db8:ff::2\n",
    );
    spaces.prov.batch(
        "link set lo up\nlink set eth0 up\naddr add 198.51.100.2/24 dev eth0\n\
         addr add 2001:db8:64::2/64 dev eth0 nodad\n\
         route add default via 198.51.100.1\nroute add default via 2001:db8:64::1\n",
    );
    // A local route makes every address of a prefix the web's own.
    spaces.web.batch(
        "link set lo up\nlink set eth0 up\naddr add 192.0.2.2/24 dev eth0\n\
         addr add 2001:db8:ff::2/64 dev eth0 nodad\n\
         route add local 192.0.2.100/30 dev lo\nroute add local 192.0.2.104/29 dev lo\n\
         route add local 192.0.2.112/28 dev lo\nroute add local 192.0.2.128/25 dev lo\n\
         route add local 192.0.2.8/29 dev lo\nroute add local 10.99.0.0/24 dev lo\n\
         route add local 2001:db8:2::/64 dev lo\n\
         route add default via 192.0.2.1\nroute add default via 2001:db8:ff::1\n",
    );
    // The echo on UDP answers from the address that was asked because conntrack turns the redirection back.
    spaces.web.nft(
        "table ip web {\nchain pre { type nat hook prerouting priority dstnat; policy accept;\n\
         udp dport 7 redirect\n}\n}\n",
    );
}

fn lan(spaces: &Spaces) {
    for (i, client) in spaces.clients.iter().enumerate() {
        client.batch(&format!(
            "link set lo up\nlink set eth0 up\naddr add {}/24 dev eth0\naddr add {}/64 dev eth0 nodad\n\
             route add default via 10.77.0.1\nroute add default via fd77::1\n",
            names::client(i + 1),
            names::client6(i + 1),
        ));
    }
    // One namespace answers for every address of the spread prefix but the gateway's own.
    spaces.spread.batch(
        "link set lo up\nlink set eth0 up\naddr add 10.78.3.254/22 dev eth0\n\
         route add default via 10.78.0.1\n",
    );
    let mut own = String::new();
    for i in 1..=1000 {
        writeln!(own, "route add local {} dev lo", names::spread(i)).expect("a string takes it");
    }
    spaces.spread.batch(&own);
}
