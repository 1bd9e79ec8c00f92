//! The command `egressctl`.
fn main() {}
