//! WireGuard as text: wg-quick files, what `wg setconf` reads, what `wg show all dump` prints.
//!
//! **Invariant:** everything here is text in, values out or values in, text out; a secret leaves these
//! values through a method named `reveal` and in no other way.

pub mod config;
pub mod dump;
pub mod key;
pub mod parse;
pub mod problem;
pub mod render;

pub use config::{Dialect, Endpoint, Host, Parameter, Peer, Section, TunnelConfig};
pub use dump::{DumpError, DumpedPeer, DumpedTunnel, parse_all_dump};
pub use key::{KeyFault, PresharedKey, PublicKey, SecretKey};
pub use parse::{Parsed, parse, parse_bytes};
pub use problem::{Note, NoteCode, Problem, ProblemCode};
pub use render::{Outside, Rendered, setconf, wg_quick};
