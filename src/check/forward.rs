//! Strangers' nft rules that are in the way of clients.
//!
//! **Invariant:** our own tables are never a finding here.

use super::ruleset::{Chain, Fate, Packet, Ruleset};
use super::{Code, Finding};
use crate::names::{Interface, Mark};
use crate::policy::pool::MARK_BASE;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// A way that packets of clients go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where they come in.
    pub lan: Interface,
    /// A client there.
    pub client: Ipv4Addr,
    /// Where they leave.
    pub slot: Interface,
    /// Their mark.
    pub mark: Mark,
}

/// Where the packet goes that stands for all: an address that is nobody's (RFC 5737).
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Who wrote a table.
enum Owner {
    Docker,
    Ufw,
    Firewalld,
    Libvirt,
    Somebody,
}

/// Chains at the forward hook that drop what clients send to a slot; each once.
#[must_use]
pub fn drops(ruleset: &Ruleset, ways: &[Way]) -> Vec<Finding> {
    let hooked = |chain: &&Chain| {
        chain.hook.as_deref() == Some("forward")
            && (chain.family == "ip" || chain.family == "inet")
            && !chain.is_ours()
    };
    let mut findings = Vec::new();
    for chain in ruleset.chains.iter().filter(hooked) {
        let caught = ways.iter().find_map(|way| {
            let packet = Packet {
                iif: way.lan.as_str(),
                oif: way.slot.as_str(),
                from: way.client,
                to: FAR,
                mark: way.mark.0,
            };
            match ruleset.fate(chain, &packet) {
                Fate::Passes => None,
                Fate::MayDrop => Some((Code::ForwardMayDrop, way)),
                Fate::Drops => Some((Code::ForwardDrops, way)),
            }
        });
        let Some((code, way)) = caught else { continue };
        let (owner, who) = owner(ruleset, chain);
        let what = format!(
            "chain {} of table {} {}{who} drops what {} sends from {} to {}",
            chain.name, chain.family, chain.table, way.client, way.lan, way.slot
        );
        findings.push(Finding::new(code, what, mend(&owner, chain, &way.lan)));
    }
    findings
}

fn owner(ruleset: &Ruleset, chain: &Chain) -> (Owner, &'static str) {
    let has = |begin: &str| {
        ruleset.chains.iter().any(|other| {
            other.family == chain.family
                && other.table == chain.table
                && other.name.starts_with(begin)
        })
    };
    if chain.table == "firewalld" {
        (Owner::Firewalld, " (firewalld)")
    } else if has("DOCKER-USER") {
        (Owner::Docker, " (docker)")
    } else if has("ufw") {
        (Owner::Ufw, " (ufw)")
    } else if has("LIBVIRT") || chain.table == "libvirt_network" {
        (Owner::Libvirt, " (libvirt)")
    } else {
        (Owner::Somebody, "")
    }
}

fn mend(owner: &Owner, chain: &Chain, lan: &Interface) -> String {
    match owner {
        Owner::Docker => format!(
            "iptables -I DOCKER-USER -i {lan} -j ACCEPT; iptables -I DOCKER-USER -o {lan} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        ),
        Owner::Ufw => format!("ufw route allow in on {lan}"),
        Owner::Firewalld => format!(
            "firewall-cmd --permanent --new-policy egress; firewall-cmd --permanent --policy egress --set-target ACCEPT; firewall-cmd --permanent --policy egress --add-ingress-zone $(firewall-cmd --get-zone-of-interface={lan}); firewall-cmd --permanent --policy egress --add-egress-zone ANY; firewall-cmd --reload"
        ),
        Owner::Libvirt => format!(
            "iptables -I FORWARD -i {lan} -j ACCEPT; iptables -I FORWARD -o {lan} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        ),
        Owner::Somebody => {
            let at = format!("{} {} {}", chain.family, chain.table, chain.name);
            format!(
                "nft insert rule {at} iifname {lan} accept; nft insert rule {at} oifname {lan} ct state established,related accept; and write both into the file that loads the table"
            )
        }
    }
}

/// A policy of the kernel's older tables that drops what is forwarded, from `iptables-legacy -S FORWARD`.
#[must_use]
pub fn legacy(listing: &str, lan: &Interface) -> Option<Finding> {
    let drops = listing.lines().any(|line| line.trim() == "-P FORWARD DROP");
    let takes = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of_lan =
            words.windows(2).any(|pair| matches!(pair, ["-i", name] if *name == lan.as_str()));
        let of_any = words == ["-A", "FORWARD", "-j", "ACCEPT"];
        words.ends_with(&["-j", "ACCEPT"]) && (of_lan || of_any)
    };
    (drops && !listing.lines().any(takes)).then(|| {
        Finding::new(
            Code::ForwardMayDrop,
            "chain FORWARD of iptables-legacy drops by default, and no rule there accepts the LAN",
            format!(
                "iptables-legacy -I FORWARD -i {lan} -j ACCEPT; iptables-legacy -I FORWARD -o {lan} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
            ),
        )
    })
}

/// Whether a rule of somebody's tells what is forwarded how large packets may be.
#[must_use]
pub fn clamps(ruleset: &Ruleset) -> bool {
    let sets = |part: &Value| {
        let option = part.pointer("/mangle/key/tcp option/name").and_then(Value::as_str);
        let target = part.pointer("/xt/name").and_then(Value::as_str);
        option == Some("maxseg") || target == Some("TCPMSS")
    };
    let others = ruleset.chains.iter().filter(|chain| !chain.is_ours());
    others.flat_map(|chain| &chain.rules).flatten().any(sets)
}

/// Rules that offload flows.
#[must_use]
pub fn offload(ruleset: &Ruleset) -> Vec<Finding> {
    let adds = |rule: &Vec<Value>| rule.iter().any(|part| part.get("flow").is_some());
    let chains = ruleset.chains.iter().filter(|chain| chain.rules.iter().any(adds));
    chains
        .map(|chain| {
            let at = format!("{} {} {}", chain.family, chain.table, chain.name);
            Finding::new(
                Code::FlowOffload,
                format!("chain {at} adds flows to a flowtable"),
                format!("nft -a list chain {at}; then let `flow add` skip what comes from clients: put ip saddr != CLIENTS before it"),
            )
        })
        .collect()
}

/// Rules of strangers that set marks of ours, by table.
#[must_use]
pub fn marks(ruleset: &Ruleset, base: Mark) -> Vec<Finding> {
    let sets = |part: &Value| {
        let mangle = part.get("mangle")?;
        let key = mangle.get("key")?;
        let kind = key.get("meta").or_else(|| key.get("ct"))?;
        let value = u32::try_from(mangle.get("value")?.as_u64()?).ok()?;
        let is_mark = kind.get("key")?.as_str()? == "mark";
        (is_mark && value & MARK_BASE == base.0 & MARK_BASE).then_some(value)
    };
    let mut found = BTreeSet::new();
    for chain in ruleset.chains.iter().filter(|chain| !chain.is_ours()) {
        for value in chain.rules.iter().flatten().filter_map(sets) {
            found.insert((format!("{} {} {}", chain.family, chain.table, chain.name), value));
        }
    }
    found
        .into_iter()
        .map(|(at, value)| {
            Finding::new(
                Code::MarkUsed,
                format!("chain {at} sets mark {}, which is among those of {base}", Mark(value)),
                "write another routing.first_mark into the policy, such as \"0x45480000\"",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::ruleset::parse;
    use super::*;

    fn ruleset(text: &str) -> Ruleset {
        parse(&serde_json::from_str(text).unwrap())
    }

    fn interface(name: &str) -> Interface {
        Interface::try_from(name.to_owned()).unwrap()
    }

    fn ways() -> Vec<Way> {
        vec![Way {
            lan: interface("eth1"),
            client: Ipv4Addr::new(10, 77, 0, 11),
            slot: interface("vpn1"),
            mark: Mark(0x4547_0000),
        }]
    }

    #[test]
    fn each_firewall_has_its_own_mend() {
        for (text, code, part) in [
            (
                include_str!("../../tests/fixtures/check/docker.json"),
                Code::ForwardDrops,
                "iptables -I DOCKER-USER -i eth1 -j ACCEPT",
            ),
            (
                include_str!("../../tests/fixtures/check/ufw.json"),
                Code::ForwardMayDrop,
                "ufw route allow in on eth1",
            ),
            (
                include_str!("../../tests/fixtures/check/firewalld.json"),
                Code::ForwardDrops,
                "--get-zone-of-interface=eth1",
            ),
        ] {
            let findings = drops(&ruleset(text), &ways());
            let [finding] = findings.as_slice() else { panic!("{findings:?}") };
            assert!(finding.code == code && finding.mend.contains(part), "{finding:?}");
        }
    }

    #[test]
    fn our_own_table_is_in_nobodys_way() {
        let text = r#"{"nftables":[
            {"chain":{"family":"inet","table":"egressctl_home","name":"barrier","hook":"forward","policy":"drop"}},
            {"chain":{"family":"inet","table":"other","name":"f","hook":"forward","policy":"drop"}}]}"#;
        let findings = drops(&ruleset(text), &ways());
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(finding.what.contains("table inet other"), "{finding:?}");
        assert!(finding.mend.starts_with("nft insert rule inet other f iifname eth1 accept"));
    }

    #[test]
    fn a_mark_of_ours_and_an_offload_are_told_by_their_chain() {
        let shop = ruleset(include_str!("../../tests/fixtures/check/shop.json"));
        let found = marks(&shop, Mark(0x4547_0000));
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert!(finding.what.contains("inet shop before sets mark 0x45470003"), "{finding:?}");
        assert_eq!(marks(&shop, Mark(0x4548_0000)), []);
        assert_eq!(offload(&shop), []);
        let text = r#"{"nftables":[{"chain":{"family":"inet","table":"t","name":"f","hook":"forward"}},
            {"rule":{"family":"inet","table":"t","chain":"f","expr":[{"flow":{"op":"add","flowtable":"@x"}}]}}]}"#;
        let found = offload(&ruleset(text));
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.code, Code::FlowOffload);
    }

    #[test]
    fn older_tables_drop_unless_a_rule_takes_the_lan() {
        let lan = interface("eth1");
        let drops = "-P FORWARD DROP\n-A FORWARD -i eth10 -j ACCEPT\n-A FORWARD -i eth1 -j LOG\n";
        assert_eq!(legacy(drops, &lan).unwrap().code, Code::ForwardMayDrop);
        assert_eq!(legacy(&format!("{drops}-A FORWARD -i eth1 -o x -j ACCEPT\n"), &lan), None);
        assert_eq!(legacy("-P FORWARD ACCEPT\n", &lan), None);
    }
}
