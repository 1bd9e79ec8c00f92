//! Servers that behave, hang, drip, lie and break off.

use egressctl::host::http::{Answer, Ask, AskFailure, Parcel, Verb, Via, get, send};
use egressctl::names::{Interface, Mark};
use egressctl::proxy::{Proxy, Speaks};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server that hands its first connection, after reading the request's head, to `answer`.
fn serve(answer: impl FnOnce(TcpStream, String) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            head.push(byte[0]);
        }
        answer(stream, String::from_utf8_lossy(&head).into_owned());
    });
    port
}

fn says(text: &'static str) -> u16 {
    serve(move |mut stream, _| stream.write_all(text.as_bytes()).unwrap())
}

fn ask_via(port: u16, via: Via<'_>) -> Result<Answer, AskFailure> {
    let url = format!("http://probe.example:{port}/generate_204");
    let timeout = Duration::from_secs(1);
    get(&Ask { url: &url, via, timeout, max_body: 100, addresses: &[HERE] })
}

fn ask(port: u16) -> Result<Answer, AskFailure> {
    ask_via(port, Via::Main)
}

#[test]
fn a_clean_answer_is_told_as_it_is() {
    let port = serve(|mut stream, head| {
        assert!(head.starts_with("GET /generate_204 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("host: probe.example:"), "{head}");
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let answer = ask(port).unwrap();
    assert_eq!((answer.status, answer.body.len(), answer.is_whole), (204, 0, true));
    assert!(answer.elapsed < Duration::from_secs(1));
}

/// Case C26.
#[test]
fn a_portal_shows_itself_by_status_body_and_redirect() {
    let port = says("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n<html>login>");
    let answer = ask(port).unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"<html>login>".as_slice()));
    let port =
        says("HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/login\r\nContent-Length: 0\r\n\r\n");
    let answer = ask(port).unwrap();
    assert_eq!((answer.status, answer.location.as_deref()), (302, Some("http://10.0.0.1/login")));
    let port = says("HTTP/1.1 503 Busy\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n");
    let answer = ask(port).unwrap();
    assert_eq!((answer.status, answer.retry_after.as_deref()), (503, Some("120")));
}

#[test]
fn a_server_that_hangs_or_drips_is_left_at_the_timeout() {
    let hangs = serve(|stream, _| {
        thread::sleep(Duration::from_secs(5));
        drop(stream);
    });
    let drips_head = serve(|mut stream, _| {
        for byte in b"HTTP/1.1 204 No Content\r\nX: ".iter().chain([b'x'; 1_000].iter()) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(80));
        }
    });
    let drips_body = serve(|mut stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n").unwrap();
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(80));
        }
    });
    for port in [hangs, drips_head, drips_body] {
        let begun = Instant::now();
        assert_eq!(ask(port), Err(AskFailure::Timeout));
        let took = begun.elapsed();
        assert!(
            took >= Duration::from_millis(900) && took < Duration::from_millis(1_800),
            "{took:?}"
        );
    }
}

#[test]
fn garbage_and_an_early_end_are_failures_of_the_protocol() {
    for text in [
        "\u{1}\u{2}garbage\r\n\r\n",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        "",
    ] {
        let failed = ask(says(text)).unwrap_err();
        assert!(matches!(failed, AskFailure::Protocol(_)), "{text:?}: {failed:?}");
        assert_eq!(failed.to_string().lines().count(), 1);
    }
}

#[test]
fn a_body_is_read_as_far_as_wished() {
    let port = serve(|mut stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n").unwrap();
        while stream.write_all(&[b'x'; 4_096]).is_ok() {}
    });
    let answer = ask(port).unwrap();
    assert_eq!((answer.status, answer.body.len(), answer.is_whole), (200, 100, false));
    assert!(answer.into_whole_body().is_err());
}

#[test]
fn nobody_there_and_no_address_are_told_apart() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(matches!(ask(free), Err(AskFailure::Refused(_))));
    let empty = Ask {
        url: "http://probe.example/",
        via: Via::Main,
        timeout: Duration::from_secs(1),
        max_body: 0,
        addresses: &[],
    };
    assert!(matches!(get(&empty), Err(AskFailure::Unreachable(_))));
    let bad = Ask { url: "http://user:pw@probe.example/", ..empty };
    assert!(matches!(get(&bad), Err(AskFailure::BadUrl(why)) if !why.contains("pw")));
}

#[test]
fn a_second_address_is_tried_and_ipv4_comes_first() {
    let port = says("HTTP/1.1 204 No Content\r\n\r\n");
    // Where this machine has IPv6, somebody else listens at the same port there.
    let other = TcpListener::bind(("::1", port)).ok();
    if let Some(other) = other {
        thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").unwrap();
            thread::sleep(Duration::from_secs(1));
        });
    }
    let url = format!("http://probe.example:{port}/");
    let addresses: Vec<IpAddr> =
        ["::1", "127.9.9.9", "127.0.0.1"].map(|a| a.parse().unwrap()).to_vec();
    let timeout = Duration::from_secs(1);
    let ask = Ask { url: &url, via: Via::Main, timeout, max_body: 0, addresses: &addresses };
    assert_eq!(get(&ask).unwrap().status, 204);
}

/// Case C24.
#[test]
fn a_socket_is_tied_to_its_device_or_not_used() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lo = Interface::try_from("lo".to_owned()).unwrap();
    let gone = Interface::try_from("nosuch0".to_owned()).unwrap();
    let port = says("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(ask_via(port, Via::DeviceMark(&lo, Mark(1))).unwrap().status, 204);
    let port = says("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(ask_via(port, Via::Device(&lo)).unwrap().status, 204);
    let failed = ask_via(port, Via::Device(&gone)).unwrap_err();
    assert!(
        matches!(&failed, AskFailure::NotBindable(why) if why.contains("nosuch0")),
        "{failed:?}"
    );
}

#[test]
fn a_server_without_tls_is_no_https_server() {
    let port = says("HTTP/1.1 204 No Content\r\n\r\n");
    // The server waits for the end of a head that never comes; its thread ends with the process.
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = closing.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = closing.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        thread::sleep(Duration::from_secs(1));
    });
    let https = |port: u16| {
        let url = format!("https://probe.example:{port}/");
        let timeout = Duration::from_millis(400);
        get(&Ask { url: &url, via: Via::Main, timeout, max_body: 0, addresses: &[HERE] })
    };
    assert_eq!(https(port), Err(AskFailure::Timeout));
    assert!(matches!(https(plain), Err(AskFailure::Tls(_))));
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=probe.example",
            "-addext",
            "subjectAltName=DNS:probe.example",
        ])
        .args(["-keyout", &file("key"), "-out", &file("cert")])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = std::process::Command::new("openssl")
        .args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}")])
        .args(["-key", &file("key"), "-cert", &file("cert")])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let there = SocketAddr::new(HERE, port);
    while TcpStream::connect(there).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    let url = format!("https://probe.example:{port}/");
    let timeout = Duration::from_secs(5);
    let got = get(&Ask { url: &url, via: Via::Main, timeout, max_body: 0, addresses: &[HERE] });
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(matches!(&got, Err(AskFailure::Tls(why)) if why.contains("certificate")), "{got:?}");
}

#[test]
fn a_parcel_reaches_the_server_and_its_secrets_no_log() {
    let port = serve(|mut stream, head| {
        let mut body = [0; 13];
        stream.read_exact(&mut body).unwrap();
        let fine = head.starts_with("PUT /proxies/a%2Fb HTTP/1.1\r\n")
            && head.to_ascii_lowercase().contains("authorization: bearer sekret")
            && &body == b"{\"name\":\"de\"}";
        let status = if fine { "204 No Content" } else { "400 Bad Request" };
        stream
            .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
            .unwrap();
    });
    let url = format!("http://127.0.0.1:{port}/proxies/a%2Fb");
    let timeout = Duration::from_secs(2);
    let ask = Ask { url: &url, via: Via::Main, timeout, max_body: 0, addresses: &[] };
    let headers = [("Authorization", "Bearer sekret")];
    let parcel = Parcel { verb: Verb::Put, headers: &headers, body: Some(b"{\"name\":\"de\"}") };
    assert!(!format!("{parcel:?}").contains("sekret"));
    assert_eq!(send(&ask, &parcel).unwrap().status, 204);
    let bad = [("Authorization", "sekret\r\nX: y")];
    let failed = send(&ask, &Parcel { headers: &bad, ..parcel }).unwrap_err();
    assert!(!failed.to_string().contains("sekret"), "{failed}");
}

fn ask_through(speaks: Speaks, port: u16) -> Result<Answer, AskFailure> {
    let proxy = Proxy { speaks, at: SocketAddr::new(HERE, port) };
    let timeout = Duration::from_secs(1);
    let url = "http://probe.example/generate_204";
    get(&Ask { url, via: Via::Proxy(proxy), timeout, max_body: 100, addresses: &[] })
}

#[test]
fn a_proxy_is_told_the_name_and_then_stands_aside() {
    let http = serve(|mut stream, head| {
        assert!(head.starts_with("CONNECT probe.example:80 HTTP/1.1\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let mut start = [0; 25];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"GET /generate_204 HTTP/1.");
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(ask_through(Speaks::Http, http).unwrap().status, 204);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socks = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 3];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&[5, 0]).unwrap();
        let mut asked = [0; 20];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"\x05\x01\x00\x03\x0dprobe.example\x00\x50");
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(ask_through(Speaks::Socks5, socks).unwrap().status, 204);
}

#[test]
fn a_missing_proxy_is_not_a_dead_target() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(matches!(ask_through(Speaks::Http, free), Err(AskFailure::NoProxy(_))));
    let locked = says("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    assert!(matches!(ask_through(Speaks::Http, locked), Err(AskFailure::NoProxy(_))));
    let dead = says("HTTP/1.1 502 Bad Gateway\r\n\r\n");
    assert!(matches!(ask_through(Speaks::Http, dead), Err(AskFailure::Unreachable(_))));
    let hangs = serve(|stream, _| {
        thread::sleep(Duration::from_secs(3));
        drop(stream);
    });
    assert_eq!(ask_through(Speaks::Http, hangs), Err(AskFailure::Timeout));
}

#[test]
fn a_socket_in_the_file_system_is_asked_as_a_server_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core.sock");
    let timeout = Duration::from_secs(1);
    let url = "http://localhost/version";
    let ask = Ask { url, via: Via::Unix(&path), timeout, max_body: 100, addresses: &[] };
    assert!(matches!(get(&ask), Err(AskFailure::Unreachable(_))));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(get(&ask).unwrap().body, b"{}");
}
