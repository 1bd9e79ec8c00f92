//! What egressctl made for policies that are no longer there.
//!
//! **Invariant:** only what carries our name, or what a state records, is told here.

use super::ruleset::Ruleset;
use super::{Code, Finding};
use crate::iproute::Link;
use crate::machine::Owned;
use crate::names::PolicyName;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A state folder, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Whose it is.
    pub policy: PolicyName,
    /// The policy's file.
    pub path: PathBuf,
    /// Whether that file is there.
    pub has_policy: bool,
    /// What was made.
    pub owned: Owned,
}

/// Objects of policies that are gone. `named` are policies that are there, with a state or without.
#[must_use]
pub fn findings(
    left: &[Left],
    named: &BTreeSet<String>,
    ruleset: &Ruleset,
    links: &[Link],
) -> Vec<Finding> {
    let mut found = Vec::new();
    for left in left.iter().filter(|left| !left.has_policy && !named.contains(left.policy.as_str()))
    {
        let table = left.policy.nft_table();
        let there: Vec<String> = left
            .owned
            .interfaces
            .iter()
            .filter(|name| links.iter().any(|link| link.name == name.as_str()))
            .map(ToString::to_string)
            .chain(
                ruleset
                    .chains
                    .iter()
                    .any(|chain| chain.is_ours() && chain.table == table)
                    .then_some(table),
            )
            .collect();
        if there.is_empty() {
            continue;
        }
        found.push(Finding::new(
            Code::Orphan,
            format!(
                "policy {} is gone from {}, and what it made is there: {}",
                left.policy,
                left.path.display(),
                there.join(" ")
            ),
            format!("put the file back and egressctl down {}", left.path.display()),
        ));
    }
    let claimed: BTreeSet<String> = left
        .iter()
        .map(|left| left.policy.nft_table())
        .chain(
            named
                .iter()
                .filter_map(|name| Some(PolicyName::try_from(name.clone()).ok()?.nft_table())),
        )
        .collect();
    let tables: BTreeSet<&str> = ruleset
        .chains
        .iter()
        .filter(|chain| chain.is_ours())
        .map(|chain| chain.table.as_str())
        .filter(|table| !claimed.contains(*table))
        .collect();
    for table in tables {
        found.push(Finding::new(
            Code::Orphan,
            format!(
                "nft table inet {table} is there, and neither a policy nor a state of that name"
            ),
            format!("nft delete table inet {table}"),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::ruleset::parse;
    use super::*;
    use crate::names::Interface;

    fn ruleset(tables: &[&str]) -> Ruleset {
        let chain = |table: &&str| serde_json::json!({ "chain": { "family": "inet", "table": table, "name": "x" } });
        parse(&serde_json::json!({ "nftables": tables.iter().map(chain).collect::<Vec<_>>() }))
    }

    fn left(name: &str, has_policy: bool) -> Left {
        let mut owned = Owned::default();
        owned.interfaces.insert(Interface::try_from("vpn1".to_owned()).unwrap());
        Left {
            policy: PolicyName::try_from(name.to_owned()).unwrap(),
            path: PathBuf::from(format!("/etc/egressctl/{name}.json")),
            has_policy,
            owned,
        }
    }

    fn link(name: &str) -> Link {
        Link {
            index: 7,
            name: name.to_owned(),
            up: true,
            lower_up: true,
            mtu: 1420,
            kind: None,
            master: None,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn what_a_policy_that_is_gone_has_left_is_told() {
        let named = BTreeSet::from(["home".to_owned()]);
        let found =
            findings(&[left("old", false)], &named, &ruleset(&["egressctl_home"]), &[link("vpn1")]);
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert!(finding.what.contains("policy old is gone") && finding.what.ends_with("vpn1"));
        assert_eq!(findings(&[left("old", false)], &named, &ruleset(&[]), &[]), []);
        assert_eq!(
            findings(&[left("old", true)], &named, &ruleset(&["egressctl_old"]), &[link("vpn1")]),
            []
        );
    }

    #[test]
    fn a_table_of_nobody_is_told() {
        let named = BTreeSet::from(["home-2".to_owned()]);
        let tables = ruleset(&["egressctl_home_2", "egressctl_lost", "other"]);
        let found = findings(&[], &named, &tables, &[]);
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.mend, "nft delete table inet egressctl_lost");
    }
}
