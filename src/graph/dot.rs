//! A picture for Graphviz.
//!
//! **Invariant:** every name is quoted.

use super::Graph;
use crate::outcome::harmless;

/// As it stands between quotes.
fn escaped(text: &str) -> String {
    harmless(text).replace('\\', "\\\\").replace('"', "\\\"")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

pub(super) fn draw(graph: &Graph) -> String {
    let mut lines = vec![
        format!("digraph {} {{", quoted(&graph.title)),
        "    graph [rankdir=TB, nodesep=0.6, ranksep=0.7, bgcolor=white];".to_owned(),
        "    node [shape=box, style=\"rounded,filled\", fillcolor=\"#f8fafc\", fontname=\"sans-serif\"];"
            .to_owned(),
        "    edge [fontname=\"sans-serif\", fontsize=10, color=\"#64748b\"];".to_owned(),
    ];
    if graph.edges.iter().any(|edge| edge.from.is_none()) {
        lines.push(
            "    \"start\" [shape=circle, label=\"\", width=0.2, fillcolor=\"#0f172a\"];"
                .to_owned(),
        );
    }
    let standing = graph.standing();
    for state in graph.states() {
        let name = quoted(state);
        lines.push(match standing.get(state) {
            None => format!("    {name};"),
            Some(parts) => {
                let label = [&[state], parts.as_slice()].concat().join("\n");
                // A line break is told to Graphviz by its letter.
                let label = label.split('\n').map(escaped).collect::<Vec<_>>().join("\\n");
                format!("    {name} [label=\"{label}\", fillcolor=\"#2563eb\", fontcolor=white];")
            }
        });
    }
    for edge in &graph.edges {
        let from = quoted(edge.from.unwrap_or("start"));
        let label = quoted(&edge.codes.join(", "));
        lines.push(format!("    {from} -> {} [label={label}];", quoted(edge.to)));
    }
    lines.push("}".to_owned());
    lines.join("\n") + "\n"
}
