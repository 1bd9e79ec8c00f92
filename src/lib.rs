//! egressctl keeps a Linux gateway's clients online. Each run looks once, decides once, changes
//! once, proves the change, writes down what came true, and exits.

pub mod clash;
pub mod cli;
pub mod host;
pub mod iproute;
pub mod kernel;
pub mod machine;
pub mod names;
pub mod observation;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod proxy;
pub mod record;
pub mod setting;
pub mod simulate;
pub mod status;
pub mod step;
pub mod time;
pub mod url;
pub mod wireguard;
