//! The doctor: what is wrong with a machine and a policy, found from what was collected of them.
//!
//! `host::examine` collects, the files here judge. Each kind of policy has a file of its own that
//! says what of the common judgements concerns it.
//!
//! **Invariant:** nothing here looks at the world; a finding names the object, says why it matters,
//! and has a command or a line that mends it.

pub mod any;
pub mod chain;
mod code;
mod cores;
pub mod dns;
pub mod forward;
pub mod guard;
pub mod machine;
pub mod numbers;
pub mod orphans;
pub mod pool;
pub mod provider;
mod report;
pub mod resolver;
pub mod ruleset;
pub mod selector;
pub mod services;

pub use code::{Code, Severity};
pub use report::{Checked, Probe, ProbeResult, Subject};

use serde::Serialize;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which kind of thing, stable.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What, with the name of the object.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// The command, or the line of a file, that mends it.
    pub mend: String,
}

impl Finding {
    /// A finding; how bad it is and why it matters goes with the code.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>, mend: impl Into<String>) -> Self {
        let (severity, why) = (code.severity(), code.why());
        Self { code, severity, what: what.into(), why, mend: mend.into() }
    }
}

/// What the policies that are checked need of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Programs without which a step does not work.
    pub tools: std::collections::BTreeSet<&'static str>,
    /// Programs that a step can do without, worse.
    pub helpful: std::collections::BTreeSet<&'static str>,
    /// Kernel link types that tunnels are made of; empty where a daemon makes them.
    pub link_types: std::collections::BTreeSet<&'static str>,
    /// Whether a daemon makes tunnels.
    pub tun: bool,
    /// The policies that change the kernel, for which rights are needed.
    pub kernel: Vec<String>,
    /// The families in which packets are forwarded.
    pub forwarding: std::collections::BTreeSet<crate::iproute::Family>,
    /// Interfaces that egressctl makes.
    pub interfaces: Vec<crate::names::Interface>,
    /// Whether clients are closed in at boot.
    pub barrier: bool,
    /// The shortest time between two steps that is wished; `None`: nothing is stepped.
    pub interval: Option<std::time::Duration>,
    /// The policies, by name.
    pub policies: Vec<String>,
}

impl Needs {
    /// What both need.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.tools.extend(other.tools);
        self.helpful.extend(other.helpful);
        self.link_types.extend(other.link_types);
        self.interfaces.extend(other.interfaces);
        self.policies.extend(other.policies);
        self.tun |= other.tun;
        self.kernel.extend(other.kernel);
        self.forwarding.extend(other.forwarding);
        self.barrier |= other.barrier;
        self.interval = self.interval.into_iter().chain(other.interval).min();
        self
    }
}
