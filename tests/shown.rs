//! What is shown of a policy of every kind.

use crate::every_kind;

use egressctl::page::render;
use every_kind::all_kinds;

#[test]
fn the_page_shows_what_is_the_matter_with_a_policy_of_every_kind() {
    let mut all = String::new();
    for shown in all_kinds() {
        let page = render(&[shown.panel], &[], shown.now.at).unwrap();
        let (_, rest) = page.split_once("<main>").unwrap();
        all += rest.split_once("</main>").unwrap().0;
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("page_of_every_kind", all));
    for badge in [
        "temporarily through channel-reserve",
        "temporarily through fi1",
        "exit temporarily through b2",
        "fi.example.org temporarily through DE",
    ] {
        assert!(all.contains(&format!("<span class=\"chip badge\">{badge}</span>")), "{badge}");
    }
}
