//! A picture as Mermaid's `stateDiagram-v2`, which Markdown shows.
//!
//! **Invariant:** names of states are the program's own; only names of parts come from elsewhere, and
//! they hold no character that ends a note.

use super::Graph;
use crate::outcome::harmless;

pub(super) fn draw(graph: &Graph) -> String {
    let mut lines = vec!["stateDiagram-v2".to_owned(), format!("    %% {}", graph.title)];
    for edge in &graph.edges {
        let from = edge.from.unwrap_or("[*]");
        lines.push(format!("    {from} --> {}: {}", edge.to, edge.codes.join(", ")));
    }
    let standing = graph.standing();
    if !standing.is_empty() {
        lines.push("    classDef here fill:#2563eb,stroke:#1e3a8a,color:#ffffff".to_owned());
    }
    for (state, parts) in standing {
        lines.push(format!("    class {state} here"));
        if !parts.is_empty() {
            // A colon or a semicolon would end the note.
            let parts = harmless(&parts.join(", ")).replace([':', ';'], " ");
            lines.push(format!("    note right of {state} : {parts}"));
        }
    }
    lines.join("\n") + "\n"
}
