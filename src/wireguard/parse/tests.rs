mod cases;

use super::*;
use crate::wireguard::config::Dialect;
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
