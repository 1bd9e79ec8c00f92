//! The status page as a browser shows it, and what may stand in it.

use crate::page_world;

use egressctl::page::{Health, Panel, render};
use egressctl::status::Standing;
use page_world::{now, panels, row};
use std::path::Path;
use std::process::Command;

/// What a browser makes of a page: its document, or a picture of it.
fn browser(folder: &Path, page: &str, args: &[&str]) -> String {
    let file = folder.join("page.html");
    std::fs::write(&file, page).unwrap();
    let output = Command::new("timeout")
        .args(["120", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(args)
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium is in Debian's package chromium");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn page(panels: &[Panel], troubles: &[&str]) -> String {
    let troubles: Vec<String> = troubles.iter().map(|text| (*text).to_owned()).collect();
    render(panels, &troubles, now()).unwrap()
}

#[test]
fn a_browser_shows_every_policy_with_all_its_parts_and_asks_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let text = page(&panels(), &[]);
    for word in ["<script", "<link", "<img", "url(", "@import", "http://", "https://", "src="] {
        assert!(!text.contains(word), "{word}");
    }
    assert!(text.len() < 64 * 1024, "{}", text.len());
    let shown = browser(folder.path(), &text, &["--dump-dom"]);
    for panel in panels() {
        assert!(
            shown.contains(&format!(
                "<section class=\"{}\" id=\"{}\"",
                if panel.head.policy.as_str() == "proxies" || panel.head.policy.as_str() == "abroad"
                {
                    "good"
                } else {
                    "warn"
                },
                panel.head.policy
            )),
            "{}",
            panel.head.policy
        );
        for row in panel.shown.groups.iter().flat_map(|group| &group.rows) {
            assert!(
                shown.contains(&format!("<span class=\"name\">{}</span>", row.name)),
                "{}",
                row.name
            );
        }
    }
    let rows: usize =
        panels().iter().flat_map(|p| p.shown.groups.clone()).map(|g| g.rows.len()).sum();
    assert_eq!(shown.matches("viewBox=\"0 0 96 10\"").count(), rows, "a day a row");
    for word in [
        "temporarily through wwan0",
        "fi.example.org temporarily through FRA",
        "NORMAL -&gt; LOCAL_REPAIR",
        "Everyone is served, not all is as wished",
        "as of 2026-11-30 16:42 UTC, 5 policies",
    ] {
        assert!(shown.contains(word), "{word}");
    }
}

#[test]
fn what_others_call_their_things_does_nothing_to_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u{1b}[2J&amp;'\"";
    let mut panel = panels().remove(0);
    panel.shown.groups[0].rows = vec![row(evil, evil, Health::Bad, evil, &[evil])];
    panel.shown.badges = vec![evil.to_owned()];
    panel.shown.facts = vec![evil.to_owned()];
    panel.head.state = Some(evil.to_owned());
    panel.head.reasons[0].text = evil.to_owned();
    panel.history[0].reasons[0].text = evil.to_owned();
    let text = page(&[panel], &[evil]);
    assert!(
        !text.contains("<img") && !text.contains("<script") && !text.contains('\u{1b}'),
        "{text}"
    );
    let shown = browser(folder.path(), &text, &["--dump-dom"]);
    assert!(!shown.contains("<img") && !shown.contains("<script"), "{shown}");
    assert!(shown.contains("<title>Something cannot be used"), "no script has run");
    assert_eq!(
        shown.matches("&lt;img src=x onerror=").count(),
        10,
        "each is shown as it is written"
    );
}

#[test]
fn a_page_is_as_wide_as_its_screen() {
    let folder = tempfile::tempdir().unwrap();
    for (width, name) in [(390, "phone"), (1280, "desktop")] {
        let file = folder.path().join(format!("{name}.png"));
        let shot = format!("--screenshot={}", file.display());
        browser(
            folder.path(),
            &page(&panels(), &[]),
            &[&shot, &format!("--window-size={width},1600")],
        );
        let picture = std::fs::read(&file).unwrap();
        // Width and height stand in the first chunk of a PNG.
        let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
        assert_eq!((&picture[1..4], number(16), number(20)), (b"PNG".as_slice(), width, 1600));
        assert!(picture.len() > 40_000, "something is on it: {} bytes", picture.len());
        // A page that is wider than its window is moved to and fro to be read. It has no script that
        // could tell and allows none, so this copy of it gets one that may run; and it stands in a
        // frame, because a window of this browser is never as narrow as a phone.
        let tells = "<script>parent.postMessage(`${document.documentElement.scrollWidth} of ${innerWidth}`, '*')</script></body>";
        let copy = page(&panels(), &[])
            .replace("default-src 'none'", "default-src 'unsafe-inline'")
            .replace("</body>", tells);
        std::fs::write(folder.path().join("copy.html"), copy).unwrap();
        let frame = format!(
            "<title>?</title><script>onmessage = told => document.title = told.data</script>\
             <iframe src=copy.html style='width: {width}px; height: 800px; border: 0'></iframe>"
        );
        let dump = ["--dump-dom", "--virtual-time-budget=5000", "--window-size=1400,1600"];
        let shown = browser(folder.path(), &frame, &dump);
        assert!(shown.contains(&format!("<title>{width} of {width}</title>")), "{shown}");
    }
}

#[test]
fn a_page_is_dark_for_who_likes_it_dark() {
    let folder = tempfile::tempdir().unwrap();
    // A page has no script that could tell, so this copy of it gets one that may run.
    let tells = "<script>const of = (what, name) => getComputedStyle(document.querySelector(what))[name];\
                 document.title = [of('body', 'backgroundColor'), of('body', 'color'),\
                 of('section', 'backgroundColor'), of('.g', 'fill')].join(' ')</script></body>";
    let copy = page(&panels(), &[])
        .replace("default-src 'none'", "default-src 'unsafe-inline'")
        .replace("</body>", tells);
    let colours = |likes: &[&str]| {
        let shown = browser(folder.path(), &copy, &[&["--dump-dom"], likes].concat());
        let (_, rest) = shown.split_once("<title>").unwrap();
        rest.split_once("</title>").unwrap().0.to_owned()
    };
    let light = "rgb(244, 246, 250) rgb(16, 24, 42) rgb(255, 255, 255) rgb(18, 161, 80)";
    assert_eq!(colours(&[]), light);
    let dark = "rgb(11, 16, 27) rgb(232, 237, 247) rgb(19, 26, 41) rgb(47, 191, 113)";
    assert_eq!(colours(&["--blink-settings=preferredColorScheme=0"]), dark);
}

#[test]
fn a_page_of_nothing_says_so() {
    let text = page(&[], &["policy folder /etc/egressctl holds no policy"]);
    assert!(text.contains("Nothing is watched") && text.contains("holds no policy"));
    for text in [text, page(&[], &[])] {
        assert!(text.contains("<header class=\"unknown\">"), "it is no good news: {text}");
    }
}

#[test]
fn a_page_with_trouble_on_it_never_says_that_all_is_well() {
    let judged = |standing: Standing, troubles: &[&str]| {
        let panel = Panel { standing, ..panels().remove(0) };
        let text = page(&[panel], troubles);
        let between = |from: &str, to: &str| {
            text.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap().0.to_owned()
        };
        (between("<header class=\"", "\""), between("<h1>", "</h1>"))
    };
    let told = |class: &str, words: &str| (class.to_owned(), words.to_owned());
    let trouble = ["the policy x is invalid"].as_slice();
    assert_eq!(judged(Standing::AsWished, &[]), told("good", "Everything is as wished"));
    for standing in [Standing::AsWished, Standing::Degraded] {
        let expected = told("unknown", "Something cannot be used or shown");
        assert_eq!(judged(standing, trouble), expected, "{standing:?}");
    }
    for standing in [Standing::Stale, Standing::Unprotected] {
        assert_eq!(judged(standing, trouble), judged(standing, &[]), "{standing:?} is told first");
    }
}
