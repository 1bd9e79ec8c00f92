//! egressctl keeps a Linux gateway's clients online. Each run looks once, decides once, changes
//! once, proves the change, writes down what came true, and exits.

pub mod host;
pub mod iproute;
pub mod names;
pub mod time;
pub mod url;
pub mod wireguard;
