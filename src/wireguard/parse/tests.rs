use super::*;
use crate::wireguard::config::{Dialect, Host};
use crate::wireguard::problem::NoteCode;

const SECRET: &str = "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMHE=";
const OWN_PUBLIC: &str = "uvIAvhV7Z9tzLzoO03t2Qd1stcQS5QO2JrV0yt7tKCY=";
const PUBLIC: &str = "R2VvX2tjOAXl0HzTaXsw8+f8FS23Sz9BJPXCVtPKJHc=";
const ZERO: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// A good file; a test replaces one line of it.
fn good() -> String {
    format!(
        "[Interface]\nPrivateKey = {SECRET}\nAddress = 10.9.0.2/32\n\n[Peer]\n\
         PublicKey = {PUBLIC}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 192.0.2.1:51820\n"
    )
}

fn with(line: &str) -> String {
    let (key, _) = line.split_once('=').unwrap();
    let key = key.trim();
    let kept = good();
    let lines = kept.lines().map(|old| if old.starts_with(key) { line } else { old });
    lines.collect::<Vec<_>>().join("\n")
}

fn interface(line: &str) -> String {
    good().replace("[Interface]\n", &format!("[Interface]\n{line}\n"))
}

fn peer(line: &str) -> String {
    format!("{}{line}\n", good())
}

#[track_caller]
fn accepted(text: &str) -> Parsed {
    match parse(text) {
        Ok(parsed) => parsed,
        Err(problems) => panic!("{problems:#?}\n{text}"),
    }
}

#[track_caller]
fn refused(text: &str) -> Vec<Problem> {
    match parse(text) {
        Ok(parsed) => panic!("accepted {parsed:#?}\n{text}"),
        Err(problems) => problems,
    }
}

/// The one problem of a file.
#[track_caller]
fn problem(text: &str) -> Problem {
    let mut problems = refused(text);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}

fn codes(notes: &[Note]) -> Vec<(u32, NoteCode)> {
    notes.iter().map(|note| (note.line, note.code)).collect()
}

fn prefixes(list: &[ipnet::IpNet]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn a_plain_file_is_understood_without_notes() {
    let parsed = accepted(&good());
    assert_eq!(parsed.notes, []);
    assert_eq!(parsed.config.private_key.public().to_string(), OWN_PUBLIC);
    assert_eq!(parsed.config.peer.public_key.to_string(), PUBLIC);
    assert_eq!(parsed.config.peer.endpoint.to_string(), "192.0.2.1:51820");
    assert_eq!(parsed.config.peer.preshared_key, None);
    assert_eq!(parsed.config.dialect, Dialect::Plain);
}

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

#[test]
fn a_candidate_has_exactly_one_peer() {
    let without = good().split_once("[Peer]").unwrap().0.to_owned();
    assert_eq!(problem(&without).code, ProblemCode::NoPeer);
    let same = good().split_once("[Peer]").unwrap().1.replace("0.0.0.0/0", "10.0.0.0/8");
    let codes: Vec<_> =
        refused(&peer(&format!("[Peer]{same}"))).iter().map(|problem| problem.code).collect();
    assert_eq!(codes, [ProblemCode::SeveralPeers, ProblemCode::DuplicatePeer]);
    assert_eq!(problem(&with(&format!("PublicKey = {OWN_PUBLIC}"))).code, ProblemCode::OwnKey);
}

#[test]
fn each_key_that_a_tunnel_needs_is_missed() {
    for key in ["PrivateKey", "Address", "PublicKey", "AllowedIPs", "Endpoint"] {
        let whole = good();
        let kept: Vec<_> = whole.lines().filter(|line| !line.starts_with(key)).collect();
        let found = problem(&kept.join("\n"));
        assert_eq!(found.code, ProblemCode::Missing);
        assert!(found.text.starts_with(key), "{found}");
    }
}

#[test]
fn ports_that_wg_would_bend_are_refused() {
    for port in ["0", "70000", "https", "+5", "-1", "51820x", ""] {
        let found = problem(&with(&format!("Endpoint = vpn.example:{port}")));
        assert_eq!(found.code, ProblemCode::BadPort, "{port}");
    }
    for port in ["0", "70000", "https"] {
        let found = problem(&interface(&format!("ListenPort = {port}")));
        assert_eq!(found.code, ProblemCode::BadPort, "{port}");
    }
}

#[test]
fn an_endpoint_without_a_machine_to_send_to_is_refused() {
    for host in
        ["", "1.2.3", "1.2.3.4.5", "256.1.1.1", "010.0.0.1", "a..b", "-a.b", "a b!", "é.example"]
    {
        let found = problem(&with(&format!("Endpoint = {host}:51820")));
        assert_eq!(found.code, ProblemCode::BadEndpoint, "{host}");
    }
    for endpoint in ["vpn.example", "0.0.0.0:1", "224.0.0.1:1", "[::]:1", "[::1", "[::1]", "[x]:1"]
    {
        let found = problem(&with(&format!("Endpoint = {endpoint}")));
        assert_eq!(found.code, ProblemCode::BadEndpoint, "{endpoint}");
    }
}

#[test]
fn keys_that_wg_would_refuse_or_take_for_none_are_refused() {
    let short = PUBLIC.strip_suffix('=').unwrap();
    for (value, says) in [(short, "this has 43"), (ZERO, "all zeros"), ("x", "this has 1")] {
        let found = problem(&with(&format!("PublicKey = {value}")));
        assert_eq!(found.code, ProblemCode::BadKey);
        assert!(found.text.contains(says), "{found}");
    }
    assert_eq!(problem(&with(&format!("PrivateKey = {ZERO}"))).code, ProblemCode::BadKey);
}

#[test]
fn lines_that_wg_cannot_read_are_refused() {
    use ProblemCode::*;
    for (line, code) in [
        ("; comment", SemicolonComment),
        ("PublicKey", NotAnAssignment),
        ("Adress = 10.0.0.2", UnknownKey),
        ("Persistent = 25", UnknownKey),
        ("PublicKey = x", WrongSection),
        ("Address = ", EmptyValue),
        ("Address = 10.0.0.2,", EmptyListEntry),
        ("Address = 10.0.0.2/024x", BadPrefix),
        ("Address = 0.0.0.0/0", BadPrefix),
        ("MTU = 575", BadNumber),
        ("MTU = 65536", BadNumber),
        ("FwMark = 0XCA6C", BadNumber),
        ("MTU = 1400\nMTU = 1401", Repeated),
        ("MTU = 14\u{0}00", ControlCharacter),
        ("MTU = 1400\rDNS = 1.1.1.1", ControlCharacter),
    ] {
        let found = refused(&interface(line));
        assert_eq!(found.first().unwrap().code, code, "{line}: {found:#?}");
    }
    for (line, code) in [
        ("Address = 10.0.0.2", WrongSection),
        ("PersistentKeepalive = 65536", BadNumber),
        ("PersistentKeepalive = 25-30", BadNumber),
        ("AllowedIPs = +10.0.0.0/8", IncrementalPrefix),
        ("AllowedIPs = -10.0.0.0/8", IncrementalPrefix),
        ("AllowedIPs = 10.0.0.0/8,,11.0.0.0/8", EmptyListEntry),
        ("Endpoint = 192.0.2.2:51820", Repeated),
        ("[Server]\nWhatever = 1\nwhatever", UnknownSection),
    ] {
        let found = problem(&peer(line));
        assert_eq!((found.line, found.code), (9, code), "{line}: {found:#?}");
    }
}

#[test]
fn a_key_before_any_section_is_reported_whether_it_is_known_or_not() {
    for line in ["MTU = 1400", "Mtoo = 1400"] {
        let found = problem(&format!("{line}\n{}", good()));
        assert_eq!((found.line, found.code), (1, ProblemCode::WrongSection));
    }
}

#[test]
fn an_ipv6_tunnel_needs_the_mtu_that_ipv6_needs() {
    let six = with("Address = 10.0.0.2, fd00::2");
    let mtu = |mtu: u32| six.replace("Address", &format!("MTU = {mtu}\nAddress"));
    assert_eq!(problem(&mtu(1279)).code, ProblemCode::BadNumber);
    assert_eq!(accepted(&mtu(1280)).config.mtu, Some(1280));
    assert_eq!(accepted(&interface("MTU = 576")).config.mtu, Some(576));
}

#[test]
fn the_same_value_twice_is_no_problem() {
    let twice = good().replace("Endpoint", "Endpoint = 192.0.2.1:51820\nEndpoint");
    assert_eq!(accepted(&twice), accepted(&good()));
}

#[test]
fn host_bits_in_allowed_ips_are_cleared_with_a_note_and_kept_in_addresses() {
    let parsed = accepted(
        &with("Address = 10.9.0.2/24").replace("0.0.0.0/0", "0.0.0.0/0, 10.1.2.3/8, 10.0.0.0/8"),
    );
    assert_eq!(prefixes(&parsed.config.peer.allowed_ips), ["0.0.0.0/0", "10.0.0.0/8"]);
    assert_eq!(prefixes(&parsed.config.addresses), ["10.9.0.2/24"]);
    assert_eq!(codes(&parsed.notes), [(7, NoteCode::HostBitsMasked)]);
}

#[test]
fn a_tunnel_that_does_not_take_everything_is_noted() {
    let narrow = accepted(&with("AllowedIPs = 10.0.0.0/8, ::/0"));
    assert_eq!(codes(&narrow.notes), [(5, NoteCode::NarrowAllowedIps)]);
    assert_eq!(accepted(&with("AllowedIPs = 0.0.0.0/1, 128.0.0.0/1")).notes, []);
}

#[test]
fn line_ends_blanks_and_comments_are_read_as_wg_reads_them() {
    let windows = good().replace('\n', "\r\n");
    assert_eq!(accepted(&windows), accepted(&good()));
    let odd =
        good().replace("PrivateKey =", "\tPrivate Key=").replace("0.0.0.0/0", "0.0. 0.0/0 # all");
    assert_eq!(accepted(&odd), accepted(&good()));
    let off = accepted(&peer("PersistentKeepalive = OFF")).config.peer;
    assert_eq!(off, accepted(&peer("PersistentKeepalive = 0")).config.peer);
    let on = accepted(&peer("PersistentKeepalive = 25")).config.peer;
    assert_eq!(on.persistent_keepalive.unwrap().get(), 25);
}

#[test]
fn a_file_in_another_encoding_is_named() {
    let found = problem(&format!("\u{feff}{}", good()));
    assert_eq!((found.line, found.code), (1, ProblemCode::ByteOrderMark));
    assert_eq!(parse_bytes(good().as_bytes()), parse(&good()));
    let latin = [b"[Interface]\n# ".as_slice(), &[0xe9], b"\n"].concat();
    let utf16 = [0xff, 0xfe, b'[', 0];
    for (bytes, line, says) in [(latin.as_slice(), 2, "not UTF-8"), (&utf16, 1, "UTF-16")] {
        let found = parse_bytes(bytes).unwrap_err().remove(0);
        assert_eq!((found.line, found.code), (line, ProblemCode::NotUtf8));
        assert!(found.text.contains(says));
    }
}

#[test]
fn what_is_too_long_is_refused_without_being_read() {
    let long = format!("DNS = {}", "1.1.1.1,".repeat(1250));
    assert_eq!(problem(&interface(&long)).code, ProblemCode::LineTooLong);
    assert_eq!(problem(&"# \n".repeat(30_000)).code, ProblemCode::TooLarge);
    let many = refused(&"x\n".repeat(5_000));
    assert_eq!(many.len(), 101);
    assert_eq!(many.last().unwrap().code, ProblemCode::More);
}

#[test]
fn no_input_makes_the_reader_panic() {
    let text = peer("PresharedKey = é\nI1 = 5\n[\n]\n=\n==\nAllowedIPs=/,:/\nEndpoint=[]:\n");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let (head, tail) = text.split_at(end);
        for piece in [head.to_owned(), tail.to_owned(), format!("{tail}{head}")] {
            let problems = parse(&piece).err();
            assert!(problems.is_none_or(|problems| !problems.is_empty()));
        }
    }
}
