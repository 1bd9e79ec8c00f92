//! What of the machine concerns every policy: programs, rights, WireGuard, forwarding, the clock.
//!
//! **Invariant:** a thing that no policy needs is no finding.

use super::resolver::Socket;
use super::ruleset::Ruleset;
use super::{Code, Finding, Needs, services};
use crate::iproute::{Family, Link, Route, Rule};
use crate::time::Moment;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// No machine that runs this program has an earlier clock: 2025-01-01, seconds since 1970.
const EARLIEST: i64 = 1_735_689_600;

/// The oldest versions that are known to do what is asked of them: those of Debian 11.
const OLDEST: [(&str, [u32; 3]); 2] = [("ip", [5, 10, 0]), ("nft", [0, 9, 8])];

/// All that was collected of the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The first line that each program says of itself, or why it is of no use.
    pub tools: BTreeMap<&'static str, Result<String, String>>,
    /// What rights are missing.
    pub rights: Option<String>,
    /// Whether the kernel has each link type; `None`: nothing tells.
    pub link_types: BTreeMap<&'static str, Option<bool>>,
    /// Whether `/dev/net/tun` is there.
    pub tun: bool,
    /// All links.
    pub links: Vec<Link>,
    /// All rules of both families.
    pub rules: Vec<Rule>,
    /// All routes of all tables.
    pub routes: Vec<Route>,
    /// All nft rules.
    pub ruleset: Ruleset,
    /// The forward chain of the kernel's older tables, where they are in use.
    pub legacy_forward: Option<String>,
    /// Values below `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
    /// What else runs here.
    pub services: services::Services,
    /// The servers that names are asked of.
    pub resolvers: Vec<IpAddr>,
    /// UDP sockets that wait for anybody.
    pub sockets: Vec<Socket>,
    /// Names of users.
    pub users: BTreeMap<u32, String>,
    /// Where this login comes from.
    pub login: Option<IpAddr>,
    /// The present moment.
    pub now: Moment,
    /// When a state was last written, by the wall clock.
    pub last_saved: Option<Timestamp>,
}

/// What is wrong with it, for what the policies need.
#[must_use]
pub fn findings(machine: &Machine, needs: &Needs) -> Vec<Finding> {
    let mut found = tools(machine, needs);
    if let Some(missing) = machine.rights.as_ref().filter(|_| !needs.kernel.is_empty()) {
        found.push(Finding::new(
            Code::NoRights,
            missing.clone(),
            "run it as root, or by egressctl.service",
        ));
    }
    for link_type in &needs.link_types {
        if machine.link_types.get(link_type) == Some(&Some(false)) {
            let go = if *link_type == "amneziawg" { "amneziawg-go" } else { "wireguard-go" };
            found.push(Finding::new(
                Code::NoKernelWireGuard,
                format!("the kernel has no link type {link_type}, and the policy names no daemon"),
                format!("install {go} and write \"wireguard\": {{ \"userspace\": \"{go}\" }} into the policy; or a kernel that has it"),
            ));
        }
    }
    if needs.tun && !machine.tun {
        found.push(Finding::new(
            Code::NoTun,
            "/dev/net/tun is not there",
            "modprobe tun; in a container, let it have /dev/net/tun",
        ));
    }
    let forward = machine.sysctls.get("net/ipv4/ip_forward").map(String::as_str);
    if needs.forwarding.contains(&Family::V4) && forward == Some("0") {
        found.push(Finding::new(
            Code::ForwardingOff,
            "net.ipv4.ip_forward is 0",
            "echo net.ipv4.ip_forward=1 > /etc/sysctl.d/90-forward.conf; sysctl -p /etc/sysctl.d/90-forward.conf",
        ));
    }
    let forward = machine.sysctls.get("net/ipv6/conf/all/forwarding").map(String::as_str);
    if needs.forwarding.contains(&Family::V6) && forward != Some("1") {
        found.push(Finding::new(
            Code::ForwardingOff,
            "net.ipv6.conf.all.forwarding is not 1",
            "echo net.ipv6.conf.all.forwarding=1 > /etc/sysctl.d/90-forward6.conf; sysctl -p /etc/sysctl.d/90-forward6.conf",
        ));
    }
    found.extend(clock(machine));
    found.extend(services::findings(&machine.services, needs));
    found
}

fn tools(machine: &Machine, needs: &Needs) -> Vec<Finding> {
    let mut found = Vec::new();
    for (tool, seen) in &machine.tools {
        let (is_needed, is_helpful) = (needs.tools.contains(tool), needs.helpful.contains(tool));
        match seen {
            Err(why) if is_needed || is_helpful => {
                let code = if is_needed { Code::ToolMissing } else { Code::ToolHelpful };
                found.push(Finding::new(code, why.clone(), install(tool)));
            }
            Ok(version) if is_needed => {
                let oldest = OLDEST.iter().find(|(name, _)| name == tool);
                if let (Some((_, oldest)), Some(seen)) = (oldest, numbers(version))
                    && seen < *oldest
                {
                    found.push(Finding::new(
                        Code::ToolOld,
                        format!("{tool} is of version {}", version_text(version)),
                        format!("{}, from a newer release of the system", install(tool)),
                    ));
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
    found
}

fn install(tool: &str) -> String {
    let package = match tool {
        "ip" => "iproute2",
        "nft" => "nftables",
        "wg" => "wireguard-tools",
        "awg" => "amneziawg-tools",
        "knsupdate" => "knot-dnsutils",
        "nsupdate" => "bind9-dnsutils",
        other => other,
    };
    format!("apt-get install {package}")
}

/// The word of a version line that begins with a number, perhaps after a `v` or a dash.
fn version_text(line: &str) -> &str {
    let digits = |word: &&str| {
        let word = word.trim_start_matches('v');
        word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit())
    };
    line.split([' ', ',', '-', '(']).find(digits).unwrap_or_default()
}

/// The first three numbers of a version.
fn numbers(line: &str) -> Option<[u32; 3]> {
    let text = version_text(line).trim_start_matches('v');
    let mut parts = text.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    let first = parts.next()??;
    let mut next = || parts.next().flatten().unwrap_or(0);
    Some([first, next(), next()])
}

fn clock(machine: &Machine) -> Option<Finding> {
    let now = machine.now.at;
    let saved = machine.last_saved.filter(|saved| *saved > now);
    let why = if let Some(saved) = saved {
        format!("it is {}, and a state was written at {}", shown(now), shown(saved))
    } else if now.as_second() < EARLIEST {
        format!("it is {}, before this program was made", shown(now))
    } else {
        return None;
    };
    let mend = "let NTP set the clock by the WAN: timedatectl set-ntp true; then timedatectl timesync-status";
    Some(Finding::new(Code::ClockBehind, why, mend))
}

fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A machine on which nothing is wrong and nothing runs.
    pub(in crate::check) fn machine() -> Machine {
        let tool = |version: &str| Ok(version.to_owned());
        Machine {
            tools: BTreeMap::from([
                ("ip", tool("ip utility, iproute2-6.1.0, libbpf 1.1.2")),
                ("nft", tool("nftables v1.0.6 (Lester Gooch #5)")),
                (
                    "wg",
                    tool("wireguard-tools v1.0.20210914 - https://git.zx2c4.com/wireguard-tools/"),
                ),
                ("conntrack", tool("conntrack v1.4.7 (conntrack-tools)")),
            ]),
            rights: None,
            link_types: BTreeMap::from([("wireguard", Some(true))]),
            tun: true,
            links: Vec::new(),
            rules: Vec::new(),
            routes: Vec::new(),
            ruleset: Ruleset::default(),
            legacy_forward: None,
            sysctls: BTreeMap::from([("net/ipv4/ip_forward".to_owned(), "1".to_owned())]),
            services: services::Services::default(),
            resolvers: Vec::new(),
            sockets: Vec::new(),
            users: BTreeMap::new(),
            login: None,
            now: Moment {
                at: "2026-11-30T12:00:00Z".parse().unwrap(),
                boot: "b".into(),
                up_ms: 1_000_000,
            },
            last_saved: None,
        }
    }

    fn needs() -> Needs {
        Needs {
            tools: ["ip", "nft", "wg"].into(),
            helpful: ["conntrack"].into(),
            link_types: ["wireguard"].into(),
            kernel: vec!["home".to_owned()],
            forwarding: [Family::V4].into(),
            ..Needs::default()
        }
    }

    fn codes(machine: &Machine, needs: &Needs) -> Vec<&'static str> {
        findings(machine, needs).iter().map(|finding| finding.code.as_str()).collect()
    }

    #[test]
    fn a_sound_machine_has_no_findings() {
        assert_eq!(findings(&machine(), &needs()), []);
    }

    #[test]
    fn each_lack_is_told_when_it_is_needed() {
        let missing = || Err("it is not on PATH".to_owned());
        let lack = |change: &dyn Fn(&mut Machine)| {
            let mut machine = machine();
            change(&mut machine);
            codes(&machine, &needs())
        };
        assert_eq!(lack(&|m| drop(m.tools.insert("nft", missing()))), ["tool-missing"]);
        assert_eq!(lack(&|m| drop(m.tools.insert("conntrack", missing()))), ["tool-wanted"]);
        assert_eq!(lack(&|m| drop(m.tools.insert("awg", missing()))), [""; 0]);
        let old = || Ok("nftables v0.9.0 (Fearless Fosdick)".to_owned());
        assert_eq!(lack(&|m| drop(m.tools.insert("nft", old()))), ["tool-old"]);
        assert_eq!(lack(&|m| m.rights = Some("x".to_owned())), ["rights-missing"]);
        assert_eq!(
            lack(&|m| m.link_types = BTreeMap::from([("wireguard", Some(false))])),
            ["kernel-wireguard-missing"]
        );
        assert_eq!(lack(&|m| m.link_types = BTreeMap::from([("wireguard", None)])), [""; 0]);
        assert_eq!(lack(&|m| m.tun = false), [""; 0]);
        let off = |m: &mut Machine| {
            let _old = m.sysctls.insert("net/ipv4/ip_forward".to_owned(), "0".to_owned());
        };
        assert_eq!(lack(&off), ["forwarding-off"]);
        let six = Needs { forwarding: [Family::V4, Family::V6].into(), ..needs() };
        assert_eq!(codes(&machine(), &six), ["forwarding-off"], "IPv6 is asked for, and not there");
        let mut forwards = machine();
        let key = "net/ipv6/conf/all/forwarding".to_owned();
        let _none = forwards.sysctls.insert(key, "1".to_owned());
        assert_eq!(codes(&forwards, &six), [""; 0]);
        let unprivileged = Machine { rights: Some("x".to_owned()), ..machine() };
        let no_kernel = Needs { kernel: Vec::new(), ..needs() };
        assert_eq!(codes(&unprivileged, &no_kernel), [""; 0], "such a policy may be anybody's");
        let tun = Needs { tun: true, ..needs() };
        assert_eq!(codes(&Machine { tun: false, ..machine() }, &tun), ["tun-missing"]);
    }

    #[test]
    fn a_clock_before_the_last_state_or_the_program_is_behind() {
        let at = |now: &str, saved: Option<&str>| {
            let mut machine = machine();
            machine.now.at = now.parse().unwrap();
            machine.last_saved = saved.map(|saved| saved.parse().unwrap());
            codes(&machine, &needs())
        };
        assert_eq!(at("1970-01-01T00:00:10Z", None), ["clock-behind"]);
        assert_eq!(at("2026-11-30T12:00:00Z", Some("2026-11-30T12:00:01Z")), ["clock-behind"]);
        assert_eq!(at("2026-11-30T12:00:00Z", Some("2026-11-30T11:59:59Z")), [""; 0]);
    }

    #[test]
    fn versions_are_found_in_what_programs_say_of_themselves() {
        for (line, wished) in [
            ("ip utility, iproute2-6.1.0, libbpf 1.1.2", Some([6, 1, 0])),
            ("nftables v1.0.6 (Lester Gooch #5)", Some([1, 0, 6])),
            ("wireguard-tools v1.0.20210914 - https://git.zx2c4.com/x/", Some([1, 0, 20_210_914])),
            ("conntrack v1.4.7 (conntrack-tools)", Some([1, 4, 7])),
            ("ip utility, iproute2-ss200127", None),
            ("", None),
        ] {
            assert_eq!(numbers(line), wished, "{line}");
        }
    }
}
