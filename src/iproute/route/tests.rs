use super::*;
use crate::iproute::split_batch;

const BATCH: &str = include_str!("../../../tests/fixtures/iproute/batch.txt");
const BATCH6: &str = include_str!("../../../tests/fixtures/iproute/batch6.txt");
const OURS: &str = include_str!("../../../tests/fixtures/iproute/ours.txt");

fn routes() -> Vec<Route> {
    parse_routes(&split_batch(BATCH, 3).unwrap()[2], Table::MAIN).unwrap()
}

fn ours() -> Vec<Route> {
    routes().into_iter().filter(|route| route.protocol == Some(201)).collect()
}

fn main_route(destination: &str) -> Route {
    let destination: IpNet = destination.parse().unwrap();
    let is_it = |route: &Route| route.destination == destination && route.table == Table::MAIN;
    routes().into_iter().find(is_it).unwrap()
}

#[test]
fn a_route_that_was_written_is_read_back_as_the_same_arguments() {
    let mut written: Vec<_> = OURS.lines().filter(|line| line.contains(" route ")).collect();
    let read: Vec<_> = ours().iter().map(|route| route.replace_args().unwrap().join(" ")).collect();
    let mut read: Vec<_> = read.iter().map(String::as_str).collect();
    written.sort_unstable();
    read.sort_unstable();
    assert_eq!(read, written);
}

#[test]
fn deleting_names_the_kind_the_device_and_the_metric() {
    let deleted: Vec<_> = ours().iter().map(|route| route.del_args().unwrap().join(" ")).collect();
    assert_eq!(
        deleted,
        [
            "-4 route del unicast default dev vpn1 table 101 metric 0 protocol 201",
            "-4 route del unreachable default table 101 metric 4278198272 protocol 201",
            "-4 route del unicast 10.80.0.0/16 via 10.77.0.9 dev eth1 table 101 metric 5 protocol 201",
            "-6 route del unicast default dev vpn1 table 101 metric 1024 protocol 201",
            "-6 route del unreachable default dev lo table 101 metric 4278198272 protocol 201",
        ]
    );
}

#[test]
fn default_routes_of_both_families_are_told_apart_in_one_listing() {
    let families: Vec<_> =
        ours().iter().map(|route| (route.family, route.destination.to_string())).collect();
    assert_eq!(families[0], (Family::V4, "0.0.0.0/0".to_owned()));
    assert_eq!(families[3], (Family::V6, "::/0".to_owned()));
}

#[test]
fn the_fields_of_captured_routes_are_read() {
    let default = main_route("0.0.0.0/0");
    assert_eq!(default.via, Some("10.77.0.254".parse().unwrap()));
    assert_eq!((default.dev.as_deref(), default.protocol), (Some("eth1"), Some(4)));
    assert_eq!(main_route("10.78.0.0/22").metric, Some(50));
    assert_eq!(main_route("2001:db8::/32").metric, Some(7));
    assert_eq!(main_route("192.0.2.0/24").kind, RouteKind::Other("6".to_owned()));
    let guard = &ours()[1];
    assert_eq!((&guard.kind, &guard.dev), (&RouteKind::Unreachable, &None));
    assert_eq!(ours()[4].dev, None);
    let local = routes().into_iter().find(|route| route.table == Table(255)).unwrap();
    assert_eq!(local.kind, RouteKind::Other("2".to_owned()));
}

#[test]
fn a_route_with_what_is_not_modelled_is_never_written() {
    for destination in ["10.79.0.0/24", "10.77.0.0/24", "192.0.2.0/24"] {
        let route = main_route(destination);
        assert_eq!((route.replace_args(), route.del_args()), (None, None), "{route:?}");
    }
    assert!(main_route("10.79.0.0/24").other, "several ways");
    assert!(main_route("10.77.0.0/24").other, "a source");
    assert!(!main_route("10.78.0.0/22").other);
    let odd = serde_json::json!([
        {"dst": "10.0.0.0/8", "dev": "x", "scope": "0", "flags": []},
        {"dst": "10.0.0.0/8", "dev": "x", "scope": "253", "flags": ["onlink"]},
        {"dst": "10.0.0.0/8", "dev": "x", "scope": "253", "flags": [], "metrics": [{"mtu": 9}]},
        {"dst": "default", "dev": "x", "flags": [], "pref": "high"},
    ]);
    assert!(parse_routes(&odd, Table(7)).unwrap().iter().all(|route| route.other));
}

#[test]
fn routes_listed_with_and_without_details_are_equal() {
    let plain = split_batch(BATCH6, 2).unwrap().remove(1);
    let plain = parse_routes(&plain, Table::MAIN).unwrap();
    let six: Vec<_> = routes().into_iter().filter(|route| route.family == Family::V6).collect();
    assert_eq!(plain, six);
    assert_eq!(plain.len(), 13);
}

#[test]
fn a_device_without_carrier_does_not_change_its_route() {
    assert!(BATCH.contains("linkdown"));
    let up = serde_json::json!([{"dst": "default", "dev": "vpn1", "protocol": "201", "scope": "253", "flags": []}]);
    assert_eq!(parse_routes(&up, Table(101)).unwrap(), ours()[..1]);
}

#[test]
fn c36_a_request_that_would_delete_a_strangers_route_is_foreseen() {
    let listing = routes();
    for mine in ours() {
        assert_eq!(mine.deletes(&listing), Some(&mine));
        for stranger in [
            Route { protocol: Some(7), ..mine.clone() },
            Route { table: Table(7), ..mine.clone() },
            Route { destination: "10.99.0.0/16".parse().unwrap(), ..mine.clone() },
        ] {
            assert_eq!(mine.deletes(&[stranger]), None);
        }
    }
    let [default, _, _, default6, guard6] = <[Route; 5]>::try_from(ours()).unwrap();
    // All tried: metric 0 is any metric in IPv4, and the kind is not compared in IPv6.
    let other_metric = Route { metric: Some(9), ..default.clone() };
    assert_eq!(default.deletes(std::slice::from_ref(&other_metric)), Some(&other_metric));
    assert_eq!(default.deletes(&[other_metric, default.clone()]), Some(&default));
    let blackhole = Route {
        kind: RouteKind::Other("6".to_owned()),
        dev: Some("lo".to_owned()),
        ..guard6.clone()
    };
    assert_eq!(guard6.deletes(std::slice::from_ref(&blackhole)), Some(&blackhole));
    let sends = Route { metric: guard6.metric, ..default6.clone() };
    assert_eq!(guard6.deletes(&[sends]), None);
    let other_metric = Route { metric: Some(9), ..default6.clone() };
    assert_eq!(default6.deletes(&[other_metric]), None);
}

#[test]
fn a_field_that_is_not_understood_is_an_error_and_a_route_survives_the_journal() {
    for bad in [
        r#"[{"dev":"x"}]"#,
        r#"[{"dst":"nowhere","flags":[]}]"#,
        r#"[{"dst":"default","metric":"x"}]"#,
        r#"[{"dst":"default","gateway":"x"}]"#,
        r#"["default"]"#,
    ] {
        assert!(parse_routes(&serde_json::from_str(bad).unwrap(), Table::MAIN).is_err(), "{bad}");
    }
    let json = serde_json::to_string(&routes()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Route>>(&json).unwrap(), routes());
}
