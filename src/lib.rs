//! egressctl keeps a Linux gateway's clients online. Each run looks once, decides once, changes
//! once, proves the change, writes down what came true, and exits.
//!
//! # One run
//!
//! ```text
//! lock ─► load state ─► journal left over? ─► undo it, say recovered, exit
//!                           │ no
//!                           ▼
//! ask (pure) ─► observe ─► decide (pure) ─► diff (pure) ─► plan
//!                                                            │
//!    commit the future that came true ◄─ verify ◄─ apply ◄─ journal on disk ◄─ lint
//! ```
//!
//! # The nouns
//!
//! * A [`policy`] is what an operator wants, whole and checked when it is parsed.
//! * An [`observation`] is what was seen: answers to the questions that a machine asked.
//! * A [`machine`] is a kind of policy. It looks at policy, state and observation and gives a
//!   decision: the world that is wished, the state if that comes true, the state if it is undone, and
//!   the reasons. It reads no clock, file or network.
//! * A [`plan`] is the difference between two worlds ([`kernel::diff`]). The same function heals what
//!   somebody removed, builds anew after a reboot, and makes the undo.
//! * An [`outcome`] is how a run ended: an exit code, one line, and a line of history.
//!
//! # Where things are
//!
//! | module | what |
//! |---|---|
//! | [`step`] | one run in order, the only place where the pure core and the host meet |
//! | [`pool`] | the machine of many tunnels and many clients |
//! | [`selector`] | the machine of a primary and a reserve, for new connections |
//! | [`guard`] | the machine that helps a core's automatic group |
//! | [`dns`] | the machine of host names that follow living nodes |
//! | [`chain`] | the machine of several hops, each with its backups |
//! | [`kernel`], [`iproute`], [`wireguard`] | worlds as values, and what `ip`, `nft` and `wg` say |
//! | [`setting`], [`clash`], [`gost`], [`proxy`] | settings outside of the kernel, and what those who hold them say |
//! | [`record`], [`moments`], [`host::store`] | what is remembered, which of it are moments, and how it lies on disk |
//! | [`check`], [`init`], [`simulate`] | the doctor, the first policy, and a policy played on a scripted world |
//! | [`publish`], [`measure`], [`notice`] | what is shown to the world, measured, and told to people and the journal |
//! | [`host`] | everything that touches the world: clock, files, processes, network |
//! | [`explain`], [`bundle`], [`graph`] | why it was decided so, the same for others to decide again, and each machine as a picture |
//! | [`in_order`] | JSON whose order says something |
//! | [`page`], [`day`] | the status page, and how each part was in the last 24 hours |
//! | [`cli`] | commands, what they print, and schemas |
//!
//! **Invariant:** only [`host`] touches the world, and only [`step`] and [`cli`] call it; the linter
//! refuses a clock, a file, a process or a socket anywhere else.

pub mod bundle;
pub mod chain;
pub mod check;
pub mod clash;
pub mod cli;
pub mod day;
pub mod dns;
pub mod explain;
pub mod gost;
pub mod graph;
pub mod guard;
pub mod host;
pub mod in_order;
pub mod init;
pub mod iproute;
pub mod kernel;
pub mod machine;
pub mod measure;
pub mod moments;
pub mod names;
pub mod notice;
pub mod observation;
pub mod outcome;
pub mod page;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod proxy;
pub mod publish;
pub mod record;
pub mod selector;
pub mod setting;
pub mod simulate;
pub mod status;
pub mod step;
pub mod time;
pub mod url;
pub mod wireguard;
