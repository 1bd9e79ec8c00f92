//! The nft rules of the machine, as far as they are understood, and what they do to one packet.
//!
//! **Invariant:** a rule that is not wholly understood never decides; that it was met is told.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// More jumps than this are a circle, which the kernel does not load.
const DEEPEST: usize = 16;

/// All chains of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    /// The chains, in their order.
    pub chains: Vec<Chain>,
}

/// One chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The family: `ip`, `ip6`, `inet` and others.
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Where packets meet it first; `None`: only by a jump.
    pub hook: Option<String>,
    /// Whether what no rule decided is dropped.
    pub drops: bool,
    /// Its rules: what each is made of.
    pub rules: Vec<Vec<Value>>,
}

impl Chain {
    /// Whether it is in a table of ours.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.family == "inet" && self.table.starts_with("egressctl_")
    }
}

/// A new TCP flow to port 443, as a client opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The device that it came in by.
    pub iif: &'a str,
    /// The device that it leaves by.
    pub oif: &'a str,
    /// Who sent it.
    pub from: Ipv4Addr,
    /// To whom.
    pub to: Ipv4Addr,
    /// Its mark.
    pub mark: u32,
}

/// What a chain does to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Passes,
    /// It is dropped, unless a rule that was not understood accepts it.
    MayDrop,
    /// It is dropped.
    Drops,
}

/// Reads `nft -j list ruleset`. What has another shape is left out.
#[must_use]
pub fn parse(listing: &Value) -> Ruleset {
    let mut ruleset = Ruleset::default();
    // A cluster has a chain for each of ten thousand services.
    let mut places = BTreeMap::new();
    for object in listing.get("nftables").and_then(Value::as_array).into_iter().flatten() {
        let text = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(chain) = object.get("chain") {
            let word = |key: &str| text(chain, key).unwrap_or_default();
            let (family, table, name) = (word("family"), word("table"), word("name"));
            let at = (family.clone(), table.clone(), name.clone());
            places.entry(at).or_insert(ruleset.chains.len());
            ruleset.chains.push(Chain {
                family,
                table,
                name,
                hook: text(chain, "hook"),
                drops: text(chain, "policy").is_some_and(|policy| policy == "drop"),
                rules: Vec::new(),
            });
        } else if let Some(rule) = object.get("rule") {
            let at = (text(rule, "family"), text(rule, "table"), text(rule, "chain"));
            let (Some(family), Some(table), Some(name)) = at else { continue };
            let place = places.get(&(family, table, name)).copied();
            let chain = place.and_then(|place| ruleset.chains.get_mut(place));
            let expressions = rule.get("expr").and_then(Value::as_array).cloned();
            if let (Some(chain), Some(expressions)) = (chain, expressions) {
                chain.rules.push(expressions);
            }
        }
    }
    ruleset
}

/// Whether a rule takes a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    No,
    Unknown,
}

/// How a walk through a chain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    Return,
}

impl Ruleset {
    /// What a base chain does to a packet.
    #[must_use]
    pub fn fate(&self, chain: &Chain, packet: &Packet<'_>) -> Fate {
        let mut guessed = false;
        let verdict = self.walk(chain, packet, &mut guessed, 0);
        let dropped = match verdict {
            Verdict::Accept => false,
            Verdict::Drop => true,
            Verdict::Return => chain.drops,
        };
        match (dropped, guessed) {
            (false, _) => Fate::Passes,
            (true, true) => Fate::MayDrop,
            (true, false) => Fate::Drops,
        }
    }

    /// Walks the rules; `guessed` becomes true when one that may accept was not understood.
    fn walk(
        &self,
        chain: &Chain,
        packet: &Packet<'_>,
        guessed: &mut bool,
        depth: usize,
    ) -> Verdict {
        let mut rules = chain.rules.iter();
        let verdict = rules.find_map(|rule| self.judge(chain, rule, packet, guessed, depth));
        verdict.unwrap_or(Verdict::Return)
    }

    /// What one rule decides, if it does.
    fn judge(
        &self,
        chain: &Chain,
        rule: &[Value],
        packet: &Packet<'_>,
        guessed: &mut bool,
        depth: usize,
    ) -> Option<Verdict> {
        let mut is_sure = true;
        for expression in rule {
            match step(expression, packet) {
                Step::Match(Taken::No) => return None,
                Step::Match(Taken::Unknown) => is_sure = false,
                Step::Match(Taken::Yes) | Step::Nothing => {}
                Step::Verdict(verdict) if is_sure => return Some(verdict),
                Step::Verdict(verdict) => *guessed |= verdict == Verdict::Accept,
                Step::Choice => *guessed = true,
                Step::Jump { target, is_goto } => {
                    let next = self.chains.iter().find(|next| {
                        next.family == chain.family
                            && next.table == chain.table
                            && next.name == target
                    });
                    let Some(next) = next.filter(|_| depth < DEEPEST) else {
                        *guessed = true;
                        continue;
                    };
                    let verdict = self.walk(next, packet, guessed, depth + 1);
                    if is_sure && (is_goto || verdict != Verdict::Return) {
                        return Some(verdict);
                    }
                    *guessed |= verdict == Verdict::Accept;
                }
            }
        }
        None
    }
}

/// What one part of a rule is.
enum Step<'a> {
    Match(Taken),
    Verdict(Verdict),
    Jump {
        target: &'a str,
        is_goto: bool,
    },
    /// A map of verdicts, which is not read.
    Choice,
    /// Counters, logs and such.
    Nothing,
}

fn step<'a>(expression: &'a Value, packet: &Packet<'_>) -> Step<'a> {
    let Some((word, body)) = expression.as_object().and_then(|object| object.iter().next()) else {
        return Step::Match(Taken::Unknown);
    };
    let target = || body.get("target").and_then(Value::as_str).unwrap_or_default();
    match word.as_str() {
        "accept" => Step::Verdict(Verdict::Accept),
        "drop" | "reject" => Step::Verdict(Verdict::Drop),
        "return" => Step::Verdict(Verdict::Return),
        "jump" => Step::Jump { target: target(), is_goto: false },
        "goto" => Step::Jump { target: target(), is_goto: true },
        "vmap" | "queue" => Step::Choice,
        "match" => Step::Match(matched(body, packet)),
        // Extensions of iptables are matches that nft does not show, limits pass some packets only.
        "xt" | "limit" | "quota" | "ct count" | "connlimit" | "socket" | "osf" => {
            Step::Match(Taken::Unknown)
        }
        _ => Step::Nothing,
    }
}

/// The value of a packet that a match compares.
enum Seen<'a> {
    Text(&'a str),
    Address(Ipv4Addr),
    Number(u64),
    /// Several words are true of it.
    Words(&'a [&'a str]),
}

fn matched(body: &Value, packet: &Packet<'_>) -> Taken {
    let (Some(left), Some(right)) = (body.get("left"), body.get("right")) else {
        return Taken::Unknown;
    };
    let Some(seen) = seen(left, packet) else { return Taken::Unknown };
    let equal = compare(&seen, right);
    match (body.get("op").and_then(Value::as_str), equal) {
        (Some("==" | "in"), equal) => equal,
        (Some("!="), Taken::Yes) => Taken::No,
        (Some("!="), Taken::No) => Taken::Yes,
        _ => Taken::Unknown,
    }
}

fn seen<'a>(left: &Value, packet: &Packet<'a>) -> Option<Seen<'a>> {
    let key = |of: &str| left.get(of)?.get("key")?.as_str();
    if let Some(key) = key("meta") {
        return match key {
            "iifname" | "iif" => Some(Seen::Text(packet.iif)),
            "oifname" | "oif" => Some(Seen::Text(packet.oif)),
            "mark" => Some(Seen::Number(u64::from(packet.mark))),
            "nfproto" => Some(Seen::Words(&["ipv4", "2"])),
            "protocol" => Some(Seen::Words(&["ip"])),
            "l4proto" => Some(Seen::Words(&["tcp", "6"])),
            _ => None,
        };
    }
    if let Some(key) = key("ct") {
        return match key {
            "state" => Some(Seen::Words(&["new"])),
            // Nobody translated the address of a client's own flow.
            "status" => Some(Seen::Words(&[])),
            _ => None,
        };
    }
    let payload = left.get("payload")?;
    let (protocol, field) = (payload.get("protocol")?.as_str()?, payload.get("field")?.as_str()?);
    match (protocol, field) {
        ("ip", "saddr") => Some(Seen::Address(packet.from)),
        ("ip", "daddr") => Some(Seen::Address(packet.to)),
        ("ip", "protocol") => Some(Seen::Words(&["tcp", "6"])),
        ("tcp" | "th", "dport") => Some(Seen::Number(443)),
        // A packet of IPv4 over TCP is none of these.
        ("ip6" | "udp" | "icmp" | "icmpv6" | "sctp" | "dccp", _) => Some(Seen::Words(&[])),
        _ => None,
    }
}

fn compare(seen: &Seen<'_>, right: &Value) -> Taken {
    let is = |truth: bool| if truth { Taken::Yes } else { Taken::No };
    if let Some(list) = right.as_array().or_else(|| right.get("set").and_then(Value::as_array)) {
        let mut whole = Taken::No;
        for one in list {
            match compare(seen, one) {
                Taken::Yes => return Taken::Yes,
                Taken::Unknown => whole = Taken::Unknown,
                Taken::No => {}
            }
        }
        return whole;
    }
    let text = right.as_str();
    if text.is_some_and(|text| text.starts_with('@')) {
        return Taken::Unknown;
    }
    match seen {
        Seen::Text(seen) => text.map_or(Taken::Unknown, |text| match text.strip_suffix('*') {
            Some(begin) => is(seen.starts_with(begin)),
            None => is(*seen == text),
        }),
        Seen::Words(words) => {
            let number = right.as_u64().map(|number| number.to_string());
            match text.or(number.as_deref()) {
                Some(word) => is(words.contains(&word)),
                None if words.is_empty() => Taken::No,
                None => Taken::Unknown,
            }
        }
        Seen::Number(seen) => {
            let range = right.get("range").and_then(Value::as_array);
            if let Some([first, last]) = range.map(Vec::as_slice)
                && let (Some(first), Some(last)) = (first.as_u64(), last.as_u64())
            {
                return is((first..=last).contains(seen));
            }
            right.as_u64().map_or(Taken::Unknown, |right| is(right == *seen))
        }
        Seen::Address(seen) => {
            let prefix = right.get("prefix").and_then(|prefix| {
                let address = prefix.get("addr")?.as_str()?.parse().ok()?;
                let length = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
                ipnet::Ipv4Net::new(address, length).ok()
            });
            if let Some(prefix) = prefix {
                return is(prefix.contains(seen));
            }
            let address = text.and_then(|text| text.parse::<Ipv4Addr>().ok());
            address.map_or(Taken::Unknown, |address| is(address == *seen))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet<'a>(iif: &'a str, oif: &'a str) -> Packet<'a> {
        let (from, to) = (Ipv4Addr::new(10, 77, 0, 11), Ipv4Addr::new(192, 0, 2, 1));
        Packet { iif, oif, from, to, mark: 0x4547_0000 }
    }

    fn fates(text: &str, packet: &Packet<'_>) -> Vec<Fate> {
        let ruleset = parse(&serde_json::from_str(text).unwrap());
        let forward = |chain: &&Chain| chain.hook.as_deref() == Some("forward");
        ruleset.chains.iter().filter(forward).map(|chain| ruleset.fate(chain, packet)).collect()
    }

    const DOCKER: &str = include_str!("../../tests/fixtures/check/docker.json");
    const UFW: &str = include_str!("../../tests/fixtures/check/ufw.json");
    const FIREWALLD: &str = include_str!("../../tests/fixtures/check/firewalld.json");
    const SHOP: &str = include_str!("../../tests/fixtures/check/shop.json");

    #[test]
    fn a_chain_whose_rules_are_all_for_others_drops() {
        assert_eq!(fates(DOCKER, &packet("eth1", "vpn1")), [Fate::Drops]);
        assert_eq!(fates(DOCKER, &packet("docker0", "vpn1")), [Fate::Passes]);
    }

    #[test]
    fn an_extension_of_iptables_may_accept() {
        assert_eq!(fates(UFW, &packet("eth1", "vpn1")), [Fate::MayDrop]);
    }

    #[test]
    fn jumps_and_gotos_are_followed() {
        // To the same zone it is accepted, to another it is rejected.
        assert_eq!(fates(FIREWALLD, &packet("eth1", "eth1")), [Fate::Passes]);
        assert_eq!(fates(FIREWALLD, &packet("eth1", "vpn1")), [Fate::Drops]);
        assert_eq!(fates(FIREWALLD, &packet("lo", "vpn1")), [Fate::Passes]);
    }

    #[test]
    fn interfaces_addresses_and_ports_are_compared() {
        assert_eq!(fates(SHOP, &packet("eth1", "vpn2")), [Fate::Passes]);
        assert_eq!(fates(SHOP, &packet("wlan0", "vpn9")), [Fate::Passes]);
        // A named set and a map of verdicts are not read.
        assert_eq!(fates(SHOP, &packet("eth1", "vpn9")), [Fate::MayDrop]);
        let stranger = Packet { from: Ipv4Addr::new(10, 99, 0, 1), ..packet("eth1", "vpn1") };
        assert_eq!(fates(SHOP, &stranger), [Fate::MayDrop]);
    }

    #[test]
    fn what_is_no_ruleset_has_no_chains() {
        for text in ["[]", "{}", r#"{"nftables":[{"rule":{}},{"chain":7}]}"#] {
            let chains = parse(&serde_json::from_str(text).unwrap()).chains;
            assert!(chains.iter().all(|chain| chain.hook.is_none()), "{text}");
        }
    }
}
