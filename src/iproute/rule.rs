//! Routing policy rules: `ip -N -j rule show` and `ip -N -j -6 rule show`.
//!
//! **Invariant:** a rule is written only when everything that it selects on is modelled.

use super::Family;
use super::batch::ListingError;
use super::raw::{Fields, argument, objects};
use crate::names::Table;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// Its place: lower ones are asked first.
    pub priority: u32,
    /// The family whose packets it is asked for.
    pub family: Family,
    /// The source; `None` is all.
    pub from: Option<IpNet>,
    /// The destination; `None` is all.
    pub to: Option<IpNet>,
    /// Whether it takes the packets that do not match.
    pub not: bool,
    /// The mark and the mask under which it is compared.
    pub fwmark: Option<(u32, u32)>,
    /// The device that the packet came in by.
    pub iif: Option<String>,
    /// The device that the socket is bound to.
    pub oif: Option<String>,
    /// The first and the last user.
    pub uid_range: Option<(u32, u32)>,
    /// What happens to the packets it takes.
    pub action: RuleAction,
    /// A route of the table with at most so long a prefix is not taken.
    pub suppress_prefixlength: Option<u8>,
    /// Who made it; `None` is the kernel or nobody in particular (0 and 2, which `ip` shows only with `-d`).
    pub protocol: Option<u8>,
    /// Whether it has a selector or an effect that is not modelled here, so that it cannot be ours.
    pub other: bool,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// Looks for a route in a table, and lets the next rule try when there is none.
    Lookup(Table),
    /// Refuses the packet with an ICMP error.
    Unreachable,
    /// Anything else, in the words of `ip`.
    Other(String),
}

/// Reads a listing of the rules of one family; `ip` does not say which.
pub fn parse_rules(listing: &Value, family: Family) -> Result<Vec<Rule>, ListingError> {
    let mut rules = Vec::new();
    for mut fields in objects("rule", listing)? {
        rules.push(rule(&mut fields, family)?);
    }
    Ok(rules)
}

/// `RTN_UNREACHABLE` of linux/rtnetlink.h, which `-N` leaves as a number.
const UNREACHABLE: [&str; 2] = ["7", "unreachable"];

fn rule(fields: &mut Fields, family: Family) -> Result<Rule, ListingError> {
    Ok(Rule {
        priority: fields.number("priority")?.ok_or_else(|| fields.wrong("priority"))?,
        family,
        from: selector(fields, "src", "srclen")?,
        to: selector(fields, "dst", "dstlen")?,
        not: fields.flag("not"),
        fwmark: match (fields.number("fwmark")?, fields.number("fwmask")?) {
            (None, None) => None,
            // A mask that is whole is not printed.
            (value, mask) => Some((value.unwrap_or(0), mask.unwrap_or(u32::MAX))),
        },
        iif: fields.text("iif")?,
        oif: fields.text("oif")?,
        uid_range: fields.number("uid_start")?.zip(fields.number("uid_end")?),
        action: action(fields)?,
        suppress_prefixlength: fields.number("suppress_prefixlen")?,
        protocol: fields.number("protocol")?.filter(|protocol| !matches!(protocol, 0 | 2)),
        // A device that is missing makes its rule detached, which is no part of what was written.
        other: fields.has_more_than(&["iif_detached", "oif_detached"]),
    })
}

fn selector(fields: &mut Fields, name: &str, length: &str) -> Result<Option<IpNet>, ListingError> {
    if fields.value_is(name, "all") {
        return Ok(None);
    }
    fields.prefix(name, length)
}

fn action(fields: &mut Fields) -> Result<RuleAction, ListingError> {
    let table = fields.table("table")?;
    if let Some(action) = fields.text("action")? {
        let refuses = UNREACHABLE.contains(&action.as_str());
        return Ok(if refuses { RuleAction::Unreachable } else { RuleAction::Other(action) });
    }
    if let Some(target) = fields.number::<u32>("goto")? {
        return Ok(RuleAction::Other(format!("goto {target}")));
    }
    for word in ["nop", "l3mdev"] {
        if fields.flag(word) {
            return Ok(RuleAction::Other(word.to_owned()));
        }
    }
    Ok(table.map_or_else(|| RuleAction::Other("nothing".to_owned()), RuleAction::Lookup))
}

impl Rule {
    /// The arguments after `ip` that add this rule; `None` when it is not wholly modelled. Adding what is
    /// there fails with `File exists`: the listing is compared first.
    #[must_use]
    pub fn add_args(&self) -> Option<Vec<String>> {
        self.args("add")
    }

    /// The arguments after `ip` that delete this rule; `None` when it is not wholly modelled. The kernel
    /// deletes the first rule that has all of these, so [`Rule::deletes`] tells which one that is.
    #[must_use]
    pub fn del_args(&self) -> Option<Vec<String>> {
        self.args("del")
    }

    /// The rule of a listing that the kernel would delete on [`Rule::del_args`]: what the request does not
    /// name is not compared. Anything but an equal rule is a stranger's, and nothing is to be deleted.
    #[must_use]
    pub fn deletes<'a>(&self, listing: &'a [Rule]) -> Option<&'a Rule> {
        listing.iter().find(|rule| {
            rule.family == self.family
                && rule.priority == self.priority
                && same_if_asked(self.from.as_ref(), rule.from.as_ref())
                && same_if_asked(self.to.as_ref(), rule.to.as_ref())
                && same_if_asked(self.fwmark.as_ref(), rule.fwmark.as_ref())
                && same_if_asked(self.iif.as_ref(), rule.iif.as_ref())
                && same_if_asked(self.oif.as_ref(), rule.oif.as_ref())
                && same_if_asked(self.uid_range.as_ref(), rule.uid_range.as_ref())
                && same_if_asked(
                    self.suppress_prefixlength.as_ref(),
                    rule.suppress_prefixlength.as_ref(),
                )
                && same_if_asked(self.protocol.as_ref(), rule.protocol.as_ref())
                && self.action == rule.action
        })
    }

    fn args(&self, verb: &str) -> Option<Vec<String>> {
        let action = match &self.action {
            RuleAction::Lookup(table) => vec!["lookup".to_owned(), table.to_string()],
            RuleAction::Unreachable => vec!["unreachable".to_owned()],
            RuleAction::Other(_) => return None,
        };
        if self.other {
            return None;
        }
        let mut args: Vec<String> = [self.family.flag(), "rule", verb].map(str::to_owned).into();
        if self.not {
            args.push("not".to_owned());
        }
        let mut pair = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                args.extend([name.to_owned(), value]);
            }
        };
        pair("priority", Some(self.priority.to_string()));
        pair("from", self.from.map(argument));
        pair("to", self.to.map(argument));
        pair("fwmark", self.fwmark.map(|(mark, mask)| format!("{mark:#x}/{mask:#x}")));
        pair("iif", self.iif.clone());
        pair("oif", self.oif.clone());
        pair("uidrange", self.uid_range.map(|(first, last)| format!("{first}-{last}")));
        pair("protocol", self.protocol.map(|protocol| protocol.to_string()));
        pair("suppress_prefixlength", self.suppress_prefixlength.map(|length| length.to_string()));
        args.extend(action);
        Some(args)
    }
}

fn same_if_asked<T: PartialEq>(asked: Option<&T>, found: Option<&T>) -> bool {
    asked.is_none() || asked == found
}

#[cfg(test)]
mod tests;
