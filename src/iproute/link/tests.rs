use super::*;
use crate::iproute::split_batch;

const BATCH: &str = include_str!("../../../tests/fixtures/iproute/batch.txt");
const OURS: &str = include_str!("../../../tests/fixtures/iproute/ours.txt");

fn links() -> Vec<Link> {
    parse_links(&split_batch(BATCH, 3).unwrap()[0]).unwrap()
}

fn link(name: &str) -> Link {
    links().into_iter().find(|link| link.name == name).unwrap()
}

#[test]
fn captured_links_have_their_kind_state_and_master() {
    let names: Vec<_> = links().into_iter().map(|link| link.name).collect();
    assert_eq!(names, ["lo", "eth1p", "eth1", "br0", "vpn1"]);
    let tunnel = link("vpn1");
    assert_eq!((tunnel.kind.as_deref(), tunnel.mtu), (Some("tun"), 1420));
    assert_eq!((tunnel.up, tunnel.lower_up), (true, false));
    let bridge = link("br0");
    assert_eq!((bridge.kind.as_deref(), bridge.up), (Some("bridge"), false));
    assert_eq!(bridge.addresses, []);
    let port = link("eth1p");
    assert_eq!((port.master.as_deref(), port.lower_up), (Some("br0"), true));
    assert_eq!((link("lo").index, link("lo").kind), (1, None));
}

#[test]
fn captured_addresses_have_their_prefix_peer_and_scope() {
    let lan = link("eth1").addresses;
    assert_eq!(lan[0].local.to_string(), "10.77.0.1/24");
    assert_eq!((lan[0].scope, lan[0].dynamic, lan[0].unusable), (0, false, false));
    assert_eq!(lan[1].local.to_string(), "fd77::1/64");
    assert_eq!((lan[2].scope, lan[2].unusable), (253, true));
    let tunnel = link("vpn1").addresses;
    assert_eq!(tunnel[1].local.to_string(), "10.9.1.2/32");
    assert_eq!(tunnel[1].peer, Some("10.9.1.1".parse().unwrap()));
}

#[test]
fn an_address_that_was_written_is_read_back_as_the_same_arguments() {
    let written: Vec<_> = OURS.lines().filter(|line| line.contains(" addr ")).collect();
    let tunnel = link("vpn1").addresses;
    let read: Vec<_> =
        tunnel.iter().take(2).map(|address| address.replace_args("vpn1").join(" ")).collect();
    assert_eq!(read, written);
    assert_eq!(tunnel[2].del_args("vpn1").join(" "), "-6 addr del fd09::2/128 dev vpn1");
}

#[test]
fn a_filtered_listing_has_empty_objects_that_are_no_links() {
    let filtered =
        serde_json::json!([{}, {}, {"ifindex": 4, "ifname": "x", "flags": ["UP"], "mtu": 9}]);
    let links = parse_links(&filtered).unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!((links[0].kind.as_deref(), links[0].up), (None, true));
}

#[test]
fn what_is_no_listing_is_an_error_and_a_link_survives_the_journal() {
    for bad in ["{}", "[1]", r#"[{"ifname":"x"}]"#, r#"[{"ifname":[],"ifindex":1}]"#] {
        assert!(parse_links(&serde_json::from_str(bad).unwrap()).is_err(), "{bad}");
    }
    let json = serde_json::to_string(&links()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Link>>(&json).unwrap(), links());
}

#[test]
fn an_address_from_dhcp_or_a_failed_one_is_known() {
    let listing = serde_json::json!([{"ifindex": 2, "ifname": "x", "mtu": 9, "addr_info": [
        {"family": "inet", "local": "10.0.0.2", "prefixlen": 24, "scope": "0", "dynamic": true},
        {"family": "inet6", "local": "fd00::2", "prefixlen": 64, "scope": "0", "dadfailed": true},
    ]}]);
    let addresses = &parse_links(&listing).unwrap()[0].addresses;
    let seen: Vec<_> = addresses.iter().map(|a| (a.dynamic, a.unusable)).collect();
    assert_eq!(seen, [(true, false), (false, true)]);
}
