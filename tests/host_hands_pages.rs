//! Pages through a device: servers that answer, hang, refuse and lie.

use egressctl::host::pages::ask;
use egressctl::names::Interface;
use egressctl::observation::{
    AnyOrAll, Asker, Expect, Page, PageReading, Pages, PagesReading, Patience, Way,
};
use egressctl::url::Target;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server that says `text` to all who ask, after `wait`; and how many have asked.
fn serve(text: String, wait: Duration) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let text = text.clone();
            thread::spawn(move || {
                drop(stream.read(&mut [0; 1024]));
                thread::sleep(wait);
                drop(stream.write_all(text.as_bytes()));
            });
        }
    });
    (port, asked)
}

const GOOD: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const NEVER: Duration = Duration::from_secs(60);

fn says(text: &str) -> u16 {
    serve(text.to_owned(), Duration::ZERO).0
}

fn page(port: u16) -> Page {
    let url = Target::try_from(format!("http://probe.example:{port}/")).unwrap();
    Page { url, addresses: vec![HERE] }
}

fn by(device: &str) -> Way {
    Way::Device { device: Interface::try_from(device.to_owned()).unwrap(), mark: None }
}

fn question(ports: &[u16], require: AnyOrAll) -> Pages {
    Pages {
        asker: Asker::Wan,
        turn: 0,
        way: by("lo"),
        pages: ports.iter().map(|port| page(*port)).collect(),
        require,
        expect: Expect::Status(vec![204]),
        timeout_ms: 800,
        patience: None,
    }
}

fn asked(question: &Pages) -> (PagesReading, Duration) {
    let begun = Instant::now();
    (ask(question).unwrap(), begun.elapsed())
}

fn is_good(reading: Option<&PageReading>) -> bool {
    matches!(reading, Some(PageReading::Answer { status: 204, .. }))
}

#[test]
fn the_first_good_answer_of_any_asks_no_other_page() {
    let (second, count) = serve(GOOD.to_owned(), Duration::ZERO);
    let question = question(&[says(GOOD), second], AnyOrAll::Any);
    let (seen, took) = asked(&question);
    assert!(seen.passes(&question) && took < Duration::from_millis(150), "{took:?}");
    assert!(is_good(seen.pages[0].as_ref()));
    assert_eq!((&seen.pages[1], count.load(Ordering::SeqCst)), (&None, 0));
}

#[test]
fn a_failed_first_page_brings_the_next_one_at_once_and_a_silent_one_after_a_quarter() {
    let portal = says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin");
    let of_portal = question(&[portal, says(GOOD)], AnyOrAll::Any);
    let (seen, took) = asked(&of_portal);
    assert!(seen.passes(&of_portal) && took < Duration::from_millis(150), "{took:?}");
    assert!(matches!(seen.pages[0], Some(PageReading::Answer { status: 200, bytes: 5, .. })));

    let silent = serve(GOOD.to_owned(), NEVER).0;
    let of_silent = question(&[silent, says(GOOD)], AnyOrAll::Any);
    let (seen, took) = asked(&of_silent);
    assert!(seen.passes(&of_silent));
    assert!(took >= Duration::from_millis(200) && took < Duration::from_millis(500), "{took:?}");
    assert_eq!(seen.pages[0], None, "it did not have to answer any more");
}

#[test]
fn a_late_first_page_counts_when_the_second_fails() {
    let late = serve(GOOD.to_owned(), Duration::from_millis(400)).0;
    let question = question(&[late, closed()], AnyOrAll::Any);
    let (seen, took) = asked(&question);
    assert!(seen.passes(&question) && took < Duration::from_millis(700), "{took:?}");
    assert!(matches!(seen.pages[1], Some(PageReading::Broken(_))));
}

#[test]
fn all_are_asked_side_by_side_and_are_over_at_the_timeout() {
    let silent = serve(GOOD.to_owned(), NEVER).0;
    let question = question(&[silent, says(GOOD), silent, closed()], AnyOrAll::All);
    let (seen, took) = asked(&question);
    assert!(took >= Duration::from_millis(790) && took < Duration::from_secs(1), "{took:?}");
    assert!(!seen.passes(&question));
    assert_eq!(seen.pages[0], Some(PageReading::TimedOut));
    assert!(is_good(seen.pages[1].as_ref()));
    assert_eq!(seen.pages[2], Some(PageReading::TimedOut));
    let Some(PageReading::Broken(why)) = &seen.pages[3] else { panic!("{:?}", seen.pages[3]) };
    assert!(why.starts_with("refused"), "{why}");
}

/// A port that nobody listens on.
fn closed() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn silent_pages_of_any_are_over_at_the_timeout() {
    let silent = serve(GOOD.to_owned(), NEVER).0;
    let question = question(&[silent, silent, silent], AnyOrAll::Any);
    let (seen, took) = asked(&question);
    assert!(took >= Duration::from_millis(790) && took < Duration::from_secs(1), "{took:?}");
    assert_eq!(seen.pages, vec![Some(PageReading::TimedOut); 3]);
}

#[test]
fn a_device_by_which_anything_comes_in_has_the_whole_time() {
    let patience = Patience { next_page_ms: 20, unanswered_ms: 50, silent_ms: 100, own_packets: 1 };
    // What is sent by this device comes in by it, too.
    let late = serve(GOOD.to_owned(), Duration::from_millis(300)).0;
    for require in [AnyOrAll::Any, AnyOrAll::All] {
        let question = Pages { patience: Some(patience), ..question(&[late], require) };
        let (seen, took) = asked(&question);
        assert!(seen.passes(&question) && took >= Duration::from_millis(300), "{took:?}");
    }
    // A page that is silent is joined by the next one as soon as the question says.
    let silent = serve(GOOD.to_owned(), NEVER).0;
    let two = question(&[silent, says(GOOD)], AnyOrAll::Any);
    let two = Pages { patience: Some(patience), ..two };
    let (seen, took) = asked(&two);
    assert!(seen.passes(&two) && took < Duration::from_millis(150), "{took:?}");
}

#[test]
fn what_cannot_be_asked_is_told_apart() {
    let mut nameless = question(&[1], AnyOrAll::All);
    nameless.pages[0].addresses.clear();
    assert_eq!(asked(&nameless).0.pages, [Some(PageReading::NoAddress)]);
    let mut unbound = question(&[says(GOOD)], AnyOrAll::All);
    unbound.way = by("nix0");
    let reading = asked(&unbound).0.pages.pop().unwrap();
    assert!(matches!(reading, Some(PageReading::NotBindable(_))), "{reading:?}");
    let nothing = question(&[], AnyOrAll::Any);
    let (seen, took) = asked(&nothing);
    assert!(seen.pages.is_empty() && !seen.passes(&nothing) && took < Duration::from_millis(100));
}

#[test]
fn a_body_is_counted_as_far_as_it_matters_and_kept_without_control_characters() {
    let body = format!("a\u{1b}[31m\r\n{}", "x".repeat(4_000));
    let port = says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let mut large = question(&[port], AnyOrAll::All);
    large.expect = Expect::Bytes(1_400);
    let (seen, _) = asked(&large);
    assert!(seen.passes(&large));
    let Some(PageReading::Answer { body, bytes, .. }) = &seen.pages[0] else { panic!("{seen:?}") };
    assert!(*bytes >= 1_400 && *bytes < 4_000 && body.len() <= 256, "{bytes}");
    assert!(body.starts_with("a[31mxx"), "{body}");
    large.expect = Expect::Bytes(4_009);
    assert!(!asked(&large).0.passes(&large), "the page has 8 bytes and 4000");
    large.expect = Expect::Bytes(4_008);
    assert!(asked(&large).0.passes(&large));
}
