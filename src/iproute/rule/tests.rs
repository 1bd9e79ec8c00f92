use super::*;
use crate::iproute::split_batch;

const BATCH: &str = include_str!("../../../tests/fixtures/iproute/batch.txt");
const BATCH6: &str = include_str!("../../../tests/fixtures/iproute/batch6.txt");
const OURS: &str = include_str!("../../../tests/fixtures/iproute/ours.txt");

fn rules(family: Family) -> Vec<Rule> {
    let listing = match family {
        Family::V4 => split_batch(BATCH, 3).unwrap().remove(1),
        Family::V6 => split_batch(BATCH6, 2).unwrap().remove(0),
    };
    parse_rules(&listing, family).unwrap()
}

fn rule(priority: u32) -> Rule {
    rules(Family::V4).into_iter().find(|rule| rule.priority == priority).unwrap()
}

fn ours() -> Vec<Rule> {
    let all = rules(Family::V4).into_iter().chain(rules(Family::V6));
    all.filter(|rule| rule.protocol == Some(201)).collect()
}

#[test]
fn a_rule_that_was_written_is_read_back_as_the_same_arguments() {
    let written: Vec<_> = OURS.lines().filter(|line| line.contains(" rule ")).collect();
    let read: Vec<_> = ours().iter().map(|rule| rule.add_args().unwrap().join(" ")).collect();
    assert_eq!(read, written);
}

#[test]
fn deleting_names_all_that_adding_names() {
    for rule in ours() {
        let added = rule.add_args().unwrap().join(" ");
        assert_eq!(rule.del_args().unwrap().join(" "), added.replace("rule add", "rule del"));
    }
}

#[test]
fn the_fields_of_captured_rules_are_read() {
    let local = rule(20000);
    assert_eq!(local.to, Some("10.77.0.0/24".parse().unwrap()));
    assert_eq!(local.action, RuleAction::Lookup(Table::MAIN));
    assert_eq!((local.suppress_prefixlength, local.from), (Some(1), None));
    assert_eq!(rule(21024).fwmark, Some((0x4547_0000, u32::MAX)));
    assert_eq!(rule(21025).fwmark, Some((0x4547_0000, 0xffff_0000)));
    assert_eq!(rule(22048).uid_range, Some((5, 5)));
    assert_eq!(rule(23072).from, Some("10.77.0.11/32".parse().unwrap()));
    assert_eq!(rule(23072).action, RuleAction::Unreachable);
    let inverse = rule(23075);
    assert_eq!((inverse.not, inverse.iif.as_deref()), (true, Some("eth1")));
    assert_eq!(inverse.oif.as_deref(), Some("vpn1"));
    assert!(!rule(21024).not);
}

#[test]
fn a_rule_with_what_is_not_modelled_is_never_written() {
    for priority in [102, 103, 104, 106, 107, 108, 30105] {
        let rule = rule(priority);
        assert_eq!((rule.add_args(), rule.del_args()), (None, None), "{rule:?}");
    }
    assert!(rule(107).other && rule(108).other && rule(30105).other && rule(102).other);
    assert_eq!(rule(103).action, RuleAction::Other("goto 32766".to_owned()));
    assert!(!rule(103).other, "a detached device is no selector");
    assert_eq!(rule(104).action, RuleAction::Other("nop".to_owned()));
    assert!(!rule(100).other && !rule(101).other);
}

#[test]
fn rules_listed_with_and_without_details_are_equal() {
    let plain = include_str!("../../../tests/fixtures/iproute/rule.txt");
    let plain = parse_rules(&serde_json::from_str(plain).unwrap(), Family::V4).unwrap();
    assert_eq!(plain, rules(Family::V4));
    assert_eq!(plain.len(), 20);
}

#[test]
fn c36_a_request_that_would_delete_a_strangers_rule_is_foreseen() {
    let mine = rule(21024);
    assert_eq!(mine.deletes(&rules(Family::V4)), Some(&mine));
    assert_eq!(mine.deletes(&rules(Family::V6)), None);
    // Each of these was tried: the kernel deletes the stranger, which stands first.
    for stranger in [
        Rule { not: true, ..mine.clone() },
        Rule { other: true, ..mine.clone() },
        Rule { from: Some("1.2.3.4/32".parse().unwrap()), ..mine.clone() },
        Rule { suppress_prefixlength: Some(1), ..mine.clone() },
    ] {
        let listing = [stranger.clone(), mine.clone()];
        assert_eq!(mine.deletes(&listing), Some(&stranger));
    }
    // And these it leaves alone.
    for stranger in [
        Rule { priority: 1, ..mine.clone() },
        Rule { protocol: Some(7), ..mine.clone() },
        Rule { fwmark: Some((0x4547_0000, 0xff)), ..mine.clone() },
        Rule { action: RuleAction::Unreachable, ..mine.clone() },
        Rule { action: RuleAction::Lookup(Table(7)), ..mine.clone() },
    ] {
        assert_eq!(mine.deletes(&[stranger]), None);
    }
}

#[test]
fn names_and_numbers_are_read_alike() {
    let named = serde_json::json!([
        {"priority": 1, "src": "all", "table": "main"},
        {"priority": 2, "src": "all", "action": "unreachable"},
        {"priority": 3, "src": "all", "table": 5},
    ]);
    let actions: Vec<_> =
        parse_rules(&named, Family::V4).unwrap().into_iter().map(|rule| rule.action).collect();
    let lookup = |number| RuleAction::Lookup(Table(number));
    assert_eq!(actions, [lookup(254), RuleAction::Unreachable, lookup(5)]);
}

#[test]
fn a_field_that_is_not_understood_is_an_error_and_a_rule_survives_the_journal() {
    for bad in [
        r#"[{"src":"all"}]"#,
        r#"[{"priority":-1,"src":"all"}]"#,
        r#"[{"priority":1,"src":"10.0.0.0","srclen":33}]"#,
        r#"[{"priority":1,"src":"all","table":"vpn"}]"#,
        r#"[{"priority":1,"src":"all","fwmark":"0xzz"}]"#,
    ] {
        assert!(parse_rules(&serde_json::from_str(bad).unwrap(), Family::V4).is_err(), "{bad}");
    }
    let json = serde_json::to_string(&ours()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Rule>>(&json).unwrap(), ours());
}
