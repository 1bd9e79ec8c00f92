use super::*;

const ALL: &str = include_str!("../../../tests/fixtures/wireguard/all-dump.txt");

fn named(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

#[test]
fn a_captured_dump_is_read_whole() {
    let tunnels = parse_all_dump(ALL).unwrap();
    assert_eq!(tunnels.keys().map(Interface::as_str).collect::<Vec<_>>(), ["vpn1", "vpn2", "vpn3"]);
    let one = &tunnels[&named("vpn1")];
    assert_eq!((one.listen_port, one.fwmark), (51821, Some(0x4547_0000)));
    assert_eq!(one.private_key.as_ref().map(SecretKey::public), one.public_key);
    let [peer] = one.peers.as_slice() else { panic!("{:?}", one.peers) };
    assert_eq!(peer.endpoint, Some("127.0.0.1:51822".parse().unwrap()));
    assert_eq!(peer.allowed_ips, ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()]);
    assert_eq!((peer.rx, peer.tx, peer.keepalive), (92, 324, Some(1)));
    assert_eq!(peer.latest_handshake, Some(1_796_005_360));
    assert!(peer.preshared_key.is_some());

    let two = &tunnels[&named("vpn2")];
    assert_eq!(two.peers[0].public_key, one.public_key.unwrap());
    let silent = &two.peers[1];
    assert_eq!(silent.endpoint, Some("[2001:db8::1]:443".parse().unwrap()));
    assert_eq!(silent.allowed_ips, []);
    assert_eq!((silent.latest_handshake, silent.keepalive), (None, None));
    assert_eq!(silent.preshared_key, None);

    let three = &tunnels[&named("vpn3")];
    assert_eq!((&three.private_key, three.public_key, three.fwmark), (&None, None, None));
    assert_eq!(three.peers, []);
}

#[test]
fn the_key_of_a_file_equals_the_key_that_the_kernel_shows() {
    // capture.sh configured vpn1 with this text, which wireguard-go clamped.
    let written = "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDE=";
    assert!(!ALL.contains(written));
    let dumped = parse_all_dump(ALL).unwrap().remove(&named("vpn1")).unwrap();
    assert_eq!(SecretKey::from_base64(written).ok(), dumped.private_key);
}

#[test]
fn the_longer_lines_of_amnezia_are_read_from_both_ends() {
    let amnezia = ALL
        .replace(
            "\t51821\t0x45470000",
            "\t51821\t4\t40\t70\t0\t0\t5-6\t<r 16> <c>\t(null)\t0x45470000",
        )
        .replace("92\t324\t1\n", "92\t324\t1-9\n");
    assert_ne!(amnezia, ALL);
    assert_eq!(parse_all_dump(&amnezia), parse_all_dump(ALL));
}

#[test]
fn a_dump_that_is_cut_off_anywhere_but_between_lines_is_an_error() {
    for end in 1..ALL.len() {
        let (head, _) = ALL.split_at(end);
        assert_eq!(parse_all_dump(head).is_ok(), head.ends_with('\n'), "{end}");
    }
}

#[test]
fn nothing_is_no_tunnels_and_garbage_is_an_error_that_shows_nothing() {
    assert_eq!(parse_all_dump(""), Ok(BTreeMap::new()));
    for garbage in ["\n", "Unable to access interface\n", "vpn1\tsecret\tsecret\n", "\t\t\t\n\n"] {
        let error = parse_all_dump(garbage).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let bad = ALL.replace("51822\toff", "51822\tnever");
    assert_eq!(parse_all_dump(&bad), Err(DumpError { line: 2, what: "fwmark" }));
    for (good, bad) in
        [("\t0.0.0.0/0,", "\t0.0.0.0,"), ("\t92\t", "\t-92\t"), ("51822\t0.", "x\t0.")]
    {
        assert!(parse_all_dump(&ALL.replace(good, bad)).is_err(), "{bad}");
    }
}

#[test]
fn an_interface_with_a_name_that_ours_cannot_have_is_left_out() {
    let with = format!("{ALL}wg@home\t(none)\t(none)\t1\toff\nwg@home\tpeer\n");
    assert_eq!(parse_all_dump(&with), parse_all_dump(ALL));
}

#[test]
fn an_endpoint_on_a_link_loses_its_interface() {
    let local = ALL.replace("[2001:db8::1]:443", "[fe80::1%eth0]:443");
    let tunnels = parse_all_dump(&local).unwrap();
    let endpoint = tunnels[&named("vpn2")].peers[1].endpoint;
    assert_eq!(endpoint, Some("[fe80::1]:443".parse().unwrap()));
}

#[test]
fn a_dump_in_memory_shows_no_secret_when_it_is_printed() {
    let shown = format!("{:?}", parse_all_dump(ALL).unwrap());
    assert!(!shown.contains("MDAw"));
    assert!(shown.contains("uvIA"));
}

#[test]
fn zeros_are_no_key() {
    let zeros = ALL.replace("vpn3\t(none)", &format!("vpn3\t{}=", "A".repeat(43)));
    assert_ne!(zeros, ALL);
    assert_eq!(parse_all_dump(&zeros), parse_all_dump(ALL));
}
