//! The field cases of WireGuard files, each test named after its number.
//!
//! **Invariant:** a case that was met once stays tested.

use super::*;
use crate::wireguard::config::Host;

#[test]
fn c01_list_keys_accumulate_over_lines_and_commas_in_order() {
    let lines = with("Address = 172.16.0.2/32\nAddress = 2606:4700::2/128")
        .replace("AllowedIPs = 0.0.0.0/0", "AllowedIPs = 0.0.0.0/0\nAllowedIPs = ::/0");
    let commas = with("Address = 172.16.0.2/32, 2606:4700::2/128")
        .replace("AllowedIPs = 0.0.0.0/0", "AllowedIPs=0.0.0.0/0,::/0");
    let config = accepted(&lines).config;
    assert_eq!(prefixes(&config.addresses), ["172.16.0.2/32", "2606:4700::2/128"]);
    assert_eq!(prefixes(&config.peer.allowed_ips), ["0.0.0.0/0", "::/0"]);
    assert_eq!(config, accepted(&commas).config);
}

#[test]
fn c03_concatenated_allowed_ips_are_refused_with_their_line() {
    let found = problem(&with("AllowedIPs = 192.168.0.0/2410.0.0.1fd68:1::/48"));
    assert_eq!((found.line, found.code), (7, ProblemCode::BadPrefix));
    assert!(found.text.contains("192.168.0.0/2410.0.0.1fd68:1::/48"), "{found}");
}

#[test]
fn c04_wg_quick_keys_are_recorded_or_ignored_with_a_note_and_hooks_never_run() {
    let text = interface(
        "DNS = 10.9.0.1, lan.example\nTable = 1234\nSaveConfig = true\nMTU = 1380\nListenPort = 51820\n\
         FwMark = 0xCA6C\nPostUp = iptables -A FORWARD # secret",
    );
    let parsed = accepted(&text);
    assert_eq!(parsed.config.dns, ["10.9.0.1", "lan.example"]);
    assert_eq!(parsed.config.mtu, Some(1380));
    assert_eq!(parsed.config.fwmark, Some(0xca6c));
    assert_eq!(
        codes(&parsed.notes),
        [
            (2, NoteCode::DnsIgnored),
            (3, NoteCode::TableIgnored),
            (4, NoteCode::SaveConfigIgnored),
            (6, NoteCode::ListenPortIgnored),
            (7, NoteCode::FwMarkIgnored),
            (8, NoteCode::HookIgnored),
        ]
    );
    assert!(!format!("{:?}", parsed.notes).contains("iptables"));
    for hook in ["PreUp", "PostUp", "PreDown", "PostDown"] {
        let notes = accepted(&interface(&format!("{hook} = reboot"))).notes;
        assert_eq!(notes.first().unwrap().text, format!("{hook} is never run"));
    }
}

#[test]
fn c05_an_ipv6_endpoint_without_brackets_is_refused_with_the_right_spelling() {
    let found = problem(&with("Endpoint = 2603:a870:810:10::a0f:6001:56935"));
    assert_eq!((found.line, found.code), (8, ProblemCode::UnbracketedIpv6));
    assert!(found.text.contains("needs [ ]"));
    assert_eq!(found.mend, "write [2603:a870:810:10::a0f:6001]:56935");
    assert_eq!(problem(&with("Endpoint = ::1:51820")).mend, "write [::1]:51820");
    assert_eq!(problem(&with("Endpoint = 2001:db8::1:abcd")).mend, "write [2001:db8::1:abcd]:PORT");
    assert_eq!(problem(&with("Endpoint = 2001:db8::1:443")).mend, "write [ADDRESS]:PORT");
    let endpoint = accepted(&with("Endpoint = [2001:db8::1]:443")).config.peer.endpoint;
    assert_eq!(endpoint.host, Host::Ip("2001:db8::1".parse().unwrap()));
    assert_eq!(endpoint.to_string(), "[2001:db8::1]:443");
}

#[test]
fn c07_a_url_or_a_prefix_in_the_endpoint_is_named() {
    for (endpoint, code, says) in [
        ("http://host.sslip.io:51820", ProblemCode::UrlInEndpoint, "the scheme \"http\""),
        ("1.2.3.4/24:52820", ProblemCode::PrefixInEndpoint, "a prefix length"),
        ("vpn.example:51820/", ProblemCode::UrlInEndpoint, "a path after the port"),
        ("vpn.example/x:51820", ProblemCode::UrlInEndpoint, "a path"),
    ] {
        let found = problem(&with(&format!("Endpoint = {endpoint}")));
        assert_eq!(found.code, code, "{found}");
        assert!(found.text.contains(says), "{found}");
    }
}

#[test]
fn c08_sections_and_keys_are_read_in_any_case_and_values_are_not_changed() {
    let text = good()
        .replace("[Peer]", "[PEER]")
        .replace("[Interface]", " [ interface ] ")
        .replace("AllowedIPs", "AllowedIps")
        .replace("PrivateKey", "pRIVATEkEY")
        .replace("192.0.2.1", "De-1.Example");
    let config = accepted(&text).config;
    assert_eq!(config.private_key, accepted(&good()).config.private_key);
    assert_eq!(config.peer.endpoint.host, Host::Name("De-1.Example".to_owned()));
}

#[test]
fn c10_amnezia_keys_are_a_dialect_and_no_problem() {
    let text = interface("Jc = 4\nJmin = 40\nS1 = 34\nh1 = 5-10\nI1 = <b 0xff 00> <r 16>");
    let parsed = accepted(&format!("{text}AdvancedSecurity = on\n"));
    let Dialect::Amnezia(parameters) = &parsed.config.dialect else { panic!("plain") };
    let seen: Vec<_> = parameters.iter().map(|p| (p.name, p.value.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("Jc", "4"),
            ("Jmin", "40"),
            ("S1", "34"),
            ("H1", "5-10"),
            ("I1", "<b 0xff 00> <r 16>"),
            ("AdvancedSecurity", "on"),
        ]
    );
    assert!(!format!("{parsed:?}").contains("0xff"));
    for bad in ["Jc = 70000", "H1 = 10-5", "H1 = 0x5", "S1 = x"] {
        assert_eq!(problem(&interface(bad)).code, ProblemCode::BadNumber, "{bad}");
    }
}

#[test]
fn c12_an_empty_preshared_key_is_absent_and_an_empty_public_key_is_a_problem() {
    let parsed = accepted(&peer("PresharedKey = "));
    assert_eq!(parsed.config.peer.preshared_key, None);
    assert_eq!(codes(&parsed.notes), [(9, NoteCode::NoPresharedKey)]);
    let zeros = accepted(&peer(&format!("PresharedKey = {ZERO}")));
    assert_eq!(codes(&zeros.notes), [(9, NoteCode::NoPresharedKey)]);
    let found = problem(&with("PublicKey = "));
    assert_eq!((found.line, found.code), (6, ProblemCode::EmptyValue));
    assert!(found.text.contains("PublicKey in [Peer]"), "{found}");
}

#[test]
fn c13_every_problem_is_reported_in_one_pass_and_no_key_is_shown() {
    let truncated = SECRET.strip_suffix("HE=").unwrap();
    let text = format!(
        "[Interface]\nPrivateKey = YOUR_PRIVATE_KEY_HERE\nAddress = 10.9.0.2/33\nPrivateKye = {SECRET}\n\
         [Peer]\nPublicKey = {truncated}\nPresharedKey = {ZERO}A\nAllowedIPs = {SECRET}\n{SECRET}\n\
         {PUBLIC} {SECRET}\nEndpoint = {SECRET}:0\n[{SECRET}]\nPersistentKeepalive = {SECRET}\n"
    );
    let problems = refused(&text);
    let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [2, 3, 4, 6, 7, 8, 9, 10, 11, 12]);
    let shown = format!("{problems:?} {}", serde_json::to_string(&problems).unwrap());
    for secret in [SECRET, truncated, PUBLIC, "YOUR_PRIVATE", "MDAwMDAw", "R2VvX2"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(shown.contains("this has 21"));
    assert!(shown.contains("did you mean PrivateKey?"));
}

#[test]
fn c14_two_peers_with_one_default_route_are_refused() {
    let second = format!(
        "[Peer]\nPublicKey = {SECRET}\nAllowedIPs = ::/0, 0.0.0.0/0\nEndpoint = 192.0.2.2:51820\n"
    );
    let problems = refused(&peer(&second));
    let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.code)).collect();
    assert_eq!(found, [(9, ProblemCode::OverlappingRoutes), (9, ProblemCode::SeveralPeers)]);
    assert!(problems.iter().any(|problem| problem.text.contains("0.0.0.0/0")));
}
