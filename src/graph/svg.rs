//! A picture as SVG: a card for each state with its ways out, and a line of its own colour to each state.
//!
//! The crates that lay graphs out let lines of a machine with thirty transitions run over each other and
//! over their words, and know no dark. Here every way out has a row with its words, and all ways into a
//! state share one line, so nothing runs over anything.
//!
//! **Invariant:** every text is escaped; a picture needs no font, style or script of another file.

use super::{Edge, Graph};
use crate::outcome::harmless;
use std::collections::BTreeMap;

/// A row of a card, in pixels.
const ROW: usize = 22;
/// A card's head.
const HEAD: usize = 32;
/// Between two cards.
const GAP: usize = 22;
/// Around all.
const EDGE: usize = 24;
/// Below the title.
const TITLE: usize = 34;
/// Between two lines.
const LANE: usize = 16;
/// A letter of the rows and heads, at its widest, in tenths of a pixel: they are of one width.
const LETTER: usize = 75;

/// Colours that can be told apart, in light and in dark.
const COLOURS: [&str; 8] =
    ["#3b82f6", "#f97316", "#10b981", "#ef4444", "#a855f7", "#eab308", "#06b6d4", "#ec4899"];

const STYLE: &str = "
    svg { --paper: #ffffff; --card: #f8fafc; --rim: #cbd5e1; --ink: #0f172a; --soft: #475569; --here: #2563eb; }
    @media (prefers-color-scheme: dark) {
      svg { --paper: #0b1220; --card: #131c2e; --rim: #334155; --ink: #e2e8f0; --soft: #94a3b8; --here: #1d4ed8; }
    }
    .paper { fill: var(--paper); }
    .card { fill: var(--card); stroke: var(--rim); }
    .card.here { stroke: var(--here); stroke-width: 2.5; }
    .head { fill: var(--here); }
    text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: var(--soft); }
    .name { font-weight: 700; fill: var(--ink); }
    .on { fill: #ffffff; }
    .title { font: 600 16px system-ui, sans-serif; fill: var(--ink); }
    .way { fill: none; stroke-width: 1.75; }";

/// A text within SVG.
fn escaped(text: &str) -> String {
    harmless(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A card: a state and its ways out.
struct Card<'a> {
    /// The state; `None`: where a machine begins.
    state: Option<&'static str>,
    ways: Vec<&'a Edge>,
    top: usize,
}

impl Card<'_> {
    fn height(&self) -> usize {
        HEAD + self.ways.len() * ROW + if self.ways.is_empty() { 0 } else { 6 }
    }

    /// The middle of its head, where ways in arrive.
    fn door(&self) -> usize {
        self.top + HEAD / 2
    }

    /// The middle of a row.
    fn row(&self, n: usize) -> usize {
        self.top + HEAD + n * ROW + ROW / 2
    }
}

fn cards(graph: &Graph) -> Vec<Card<'_>> {
    let begins = graph.edges.iter().any(|edge| edge.from.is_none());
    let states = graph.states().into_iter().map(Some);
    let all = begins.then_some(None).into_iter().chain(states);
    let mut top = EDGE + TITLE;
    all.map(|state| {
        let ways = graph.edges.iter().filter(|edge| edge.from == state).collect();
        let card = Card { state, ways, top };
        top += card.height() + GAP;
        card
    })
    .collect()
}

fn words(edge: &Edge) -> String {
    format!("{} \u{2192} {}", edge.codes.join(", "), edge.to)
}

pub(super) fn draw(graph: &Graph) -> String {
    let standing = graph.standing();
    let cards = cards(graph);
    let head = |card: &Card<'_>| {
        let name = card.state.unwrap_or("no state yet");
        match card.state.and_then(|state| standing.get(state)) {
            None => name.to_owned(),
            Some(parts) if parts.is_empty() => format!("{name}  \u{25cf} here"),
            Some(parts) => format!("{name}  \u{25cf} {}", parts.join(", ")),
        }
    };
    let texts = cards.iter().flat_map(|card| {
        card.ways
            .iter()
            .map(|edge| words(edge))
            .chain([head(card)])
            .map(|text| text.chars().count())
    });
    let width = texts.max().unwrap_or_default() * LETTER / 10 + 32;
    let right = EDGE + width;
    let lanes: BTreeMap<&str, usize> =
        graph.states().into_iter().enumerate().map(|(n, state)| (state, n)).collect();
    let full = right + (lanes.len() + 2) * LANE + EDGE;
    let tall = cards.last().map_or(EDGE, |card| card.top + card.height()) + EDGE;
    let mut svg = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full} {tall}\" width=\"{full}\" height=\"{tall}\" role=\"img\">"
        ),
        format!("<title>{}</title>", escaped(&graph.title)),
        format!("<style>{STYLE}\n</style>"),
        format!("<rect class=\"paper\" width=\"{full}\" height=\"{tall}\"/>"),
        format!(
            "<text class=\"title\" x=\"{EDGE}\" y=\"{}\">{}</text>",
            EDGE + 16,
            escaped(&graph.title)
        ),
    ];
    for card in &cards {
        let here = card.state.is_some_and(|state| standing.contains_key(state));
        let (top, tall) = (card.top, card.height());
        let class = if here { "card here" } else { "card" };
        svg.push(format!(
            "<rect class=\"{class}\" x=\"{EDGE}\" y=\"{top}\" width=\"{width}\" height=\"{tall}\" rx=\"8\"/>"
        ));
        if here {
            svg.push(format!(
                "<rect class=\"head\" x=\"{EDGE}\" y=\"{top}\" width=\"{width}\" height=\"{HEAD}\" rx=\"8\"/>"
            ));
        }
        let class = if here { "name on" } else { "name" };
        svg.push(format!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>",
            EDGE + 14,
            card.door() + 4,
            escaped(&head(card))
        ));
        for (n, edge) in card.ways.iter().enumerate() {
            svg.push(format!(
                "<text x=\"{}\" y=\"{}\">{}</text>",
                EDGE + 14,
                card.row(n) + 4,
                escaped(&words(edge))
            ));
        }
    }
    svg.extend(lines(&cards, &lanes, right));
    svg.push("</svg>".to_owned());
    svg.join("\n") + "\n"
}

/// The lines: one to each state, and a way into it from each row that leads there.
fn lines(cards: &[Card<'_>], lanes: &BTreeMap<&str, usize>, right: usize) -> Vec<String> {
    let mut svg = Vec::new();
    for card in cards {
        let Some((state, lane)) = card.state.and_then(|state| lanes.get_key_value(state)) else {
            continue;
        };
        let colour = COLOURS.iter().cycle().nth(*lane).copied().unwrap_or("gray");
        let x = right + (lane + 2) * LANE;
        let door = card.door();
        let rows: Vec<usize> = cards
            .iter()
            .flat_map(|from| from.ways.iter().enumerate().map(move |(n, edge)| (from.row(n), edge)))
            .filter(|(_, edge)| edge.to == *state)
            .map(|(row, _)| row)
            .collect();
        let (Some(first), Some(last)) = (rows.iter().min(), rows.iter().max()) else { continue };
        let (above, below) = (door.min(*first), door.max(*last));
        svg.push(format!("<path class=\"way\" stroke=\"{colour}\" d=\"M{x} {above}V{below}\"/>"));
        for row in rows {
            svg.push(format!("<path class=\"way\" stroke=\"{colour}\" d=\"M{right} {row}H{x}\"/>"));
            svg.push(format!("<circle cx=\"{x}\" cy=\"{row}\" r=\"3\" fill=\"{colour}\"/>"));
        }
        let (tip, back) = (right + 1, right + 9);
        svg.push(format!("<path class=\"way\" stroke=\"{colour}\" d=\"M{x} {door}H{back}\"/>"));
        svg.push(format!("<path fill=\"{colour}\" d=\"M{tip} {door}l8 -4.5v9z\"/>"));
    }
    svg
}
