//! The rows of the recovery plan and its reasons, and whether a walk has come by each.
//!
//! **Invariant:** a row is told by where a step began, where it ended, how, and what it says.

use super::oracle::{End, Leaf};
use egressctl::pool::state::Mode;
use std::collections::BTreeSet;

/// What of a step tells its row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sight {
    /// `None` on the first run.
    pub from: Option<Mode>,
    pub to: Mode,
    pub proven: bool,
    pub asked: bool,
    pub settles: bool,
    pub end: End,
    /// Whether a slot was emptied.
    pub emptied: bool,
    pub codes: Vec<String>,
}

impl Sight {
    pub fn of(leaf: &Leaf<'_>) -> Self {
        let (before, after) = (leaf.before, leaf.after());
        let emptied = before.is_some_and(|before| {
            after.slots.iter().any(|(name, slot)| slot.is_empty() && !before.slots[name].is_empty())
        });
        Self {
            from: before.map(|before| before.mode),
            to: after.mode,
            proven: before.is_some_and(|before| before.proven),
            asked: before.is_some_and(|before| before.refresh_asked.is_some()),
            settles: before.is_some_and(|before| before.settle),
            end: leaf.end,
            emptied,
            codes: leaf.codes().map(str::to_owned).collect(),
        }
    }

    fn says(&self, code: &str) -> bool {
        self.codes.iter().any(|said| said == code)
    }

    fn is(&self, from: Mode, to: Mode) -> bool {
        self.from == Some(from) && self.to == to && self.end == End::True
    }

    fn stays(&self, mode: Mode) -> bool {
        self.is(mode, mode)
    }

    /// A candidate that was loaded failed its verification.
    fn fails(&self, mode: Mode) -> bool {
        self.from == Some(mode)
            && self.to == mode
            && self.end == End::Refused
            && self.says("candidate-failed")
    }
}

type Row = (&'static str, fn(&Sight) -> bool);

use Mode::{
    BootstrapRecovery as Recovery, DegradedPool as Degraded, DirectEmergency as Emergency,
    FullPoolRefresh as Refresh, LocalRepair as Repair, Normal, SlotExhausted as Exhausted,
};

/// Every row, in the words of the table.
pub const ROWS: &[Row] = &[
    ("(a) WAN down in NORMAL", |s| s.stays(Normal) && s.says("wan-down")),
    ("(a) WAN down in LOCAL_REPAIR", |s| s.stays(Repair) && s.says("wan-down")),
    ("(a) WAN down in FULL_POOL_REFRESH", |s| s.stays(Refresh) && s.says("wan-down")),
    ("(a) WAN down in DEGRADED_POOL", |s| s.stays(Degraded) && s.says("wan-down")),
    ("(a) WAN down in SLOT_EXHAUSTED", |s| s.stays(Exhausted) && s.says("wan-down")),
    ("(a) WAN down in DIRECT_EMERGENCY", |s| s.stays(Emergency) && s.says("wan-down")),
    ("(a) WAN down in BOOTSTRAP_RECOVERY", |s| s.stays(Recovery) && s.says("wan-down")),
    ("(a) WAN down on the first run", |s| s.from.is_none() && s.says("wan-down")),
    ("the first step after that settles", |s| s.settles && s.says("settling")),
    ("WAN falls while it is proven: undone", |s| s.end == End::Held),
    ("a command fails: undone", |s| s.end == End::Undone),
    ("(b) NORMAL, none serves, reserve", |s| s.is(Normal, Repair) && !s.says("moved")),
    ("(b) FULL_POOL_REFRESH, none serves, reserve", |s| s.is(Refresh, Repair)),
    ("(b) DEGRADED_POOL, none serves, reserve", |s| s.is(Degraded, Repair)),
    ("(b) SLOT_EXHAUSTED, none serves, reserve", |s| s.is(Exhausted, Repair)),
    ("(b) NORMAL, none serves", |s| s.is(Normal, Emergency)),
    ("(b) LOCAL_REPAIR, none serves", |s| s.is(Repair, Emergency)),
    ("(b) FULL_POOL_REFRESH, none serves", |s| s.is(Refresh, Emergency)),
    ("(b) DEGRADED_POOL, none serves", |s| s.is(Degraded, Emergency)),
    ("(b) SLOT_EXHAUSTED, none serves", |s| s.is(Exhausted, Emergency)),
    ("(c) clients of a slot that stopped move at once", |s| {
        s.says("stopped-serving") && s.says("moved")
    }),
    ("(e) all well, wait", |s| s.stays(Normal) && s.codes == ["all-serve"]),
    ("first run: FULL_POOL_REFRESH", |s| s.from.is_none() && s.to == Refresh),
    ("first run: NORMAL at once", |s| s.from.is_none() && s.to == Normal),
    ("first run: fewer than slots", |s| s.from.is_none() && s.to == Degraded),
    ("NORMAL, a slot stopped serving", |s| s.is(Normal, Repair) && s.says("stopped-serving")),
    ("LOCAL_REPAIR, retest undecided", |s| s.stays(Repair) && s.says("retesting")),
    ("LOCAL_REPAIR, retests pass", |s| s.is(Repair, Normal) && s.says("false-alarm")),
    ("LOCAL_REPAIR, mtu", |s| s.stays(Repair) && s.says("mtu-lowered")),
    ("LOCAL_REPAIR, no slot failed or empty", |s| {
        s.is(Repair, Normal) && !s.says("false-alarm") && !s.says("repaired")
    }),
    ("LOCAL_REPAIR, candidate works: NORMAL", |s| s.is(Repair, Normal) && s.says("repaired")),
    ("LOCAL_REPAIR, candidate works, another failed", |s| s.stays(Repair) && s.says("repaired")),
    ("LOCAL_REPAIR, candidate works, threshold", |s| {
        s.is(Repair, Refresh) && s.says("repaired") && s.says("repairs-reached")
    }),
    ("LOCAL_REPAIR, candidate fails, slot left empty", |s| s.fails(Repair) && s.emptied),
    ("LOCAL_REPAIR, no candidate left", |s| {
        s.is(Repair, Exhausted) && s.says("no-candidate-left") && s.emptied
    }),
    ("FULL_POOL_REFRESH, not finished", |s| s.stays(Refresh) && s.says("testing") && s.proven),
    ("FULL_POOL_REFRESH, a slot is repaired", |s| s.stays(Refresh) && s.says("repaired")),
    ("FULL_POOL_REFRESH, a slot fails its verification", |s| s.fails(Refresh)),
    ("DEGRADED_POOL, candidate fails", |s| s.fails(Degraded)),
    ("SLOT_EXHAUSTED, candidate fails", |s| s.fails(Exhausted)),
    ("FULL_POOL_REFRESH, enough passed", |s| s.is(Refresh, Normal) && s.proven),
    ("FULL_POOL_REFRESH, provider unavailable", |s| {
        s.is(Refresh, Degraded) && s.says("provider-unavailable")
    }),
    ("FULL_POOL_REFRESH, list refused", |s| s.is(Refresh, Degraded) && s.says("list-refused")),
    ("FULL_POOL_REFRESH, too few", |s| {
        s.is(Refresh, Degraded) && (s.says("too-few") || s.says("none-passed"))
    }),
    ("not proven, all slots", |s| s.is(Refresh, Normal) && !s.proven),
    ("not proven, some", |s| s.is(Refresh, Degraded) && !s.proven),
    ("not proven, none passed", |s| s.stays(Refresh) && !s.proven && s.says("none-passed")),
    ("not proven, unavailable", |s| s.stays(Refresh) && !s.proven && s.says("bootstrap-failed")),
    ("DEGRADED_POOL, a candidate works", |s| s.stays(Degraded) && s.says("repaired")),
    ("DEGRADED_POOL, none left", |s| s.is(Degraded, Exhausted) && s.says("no-candidate-left")),
    ("DEGRADED_POOL, full refresh", |s| s.is(Degraded, Normal)),
    ("SLOT_EXHAUSTED, full refresh", |s| s.is(Exhausted, Normal)),
    ("DEGRADED_POOL, unavailable or partial", |s| {
        s.stays(Degraded) && (s.says("provider-unavailable") || s.says("too-few"))
    }),
    ("SLOT_EXHAUSTED, unavailable or partial", |s| {
        s.stays(Exhausted) && (s.says("provider-unavailable") || s.says("too-few"))
    }),
    ("refresh not due", |s| s.says("refresh-later")),
    ("SLOT_EXHAUSTED, another slot failed, none left", |s| {
        s.stays(Exhausted) && s.says("no-candidate-left") && s.emptied
    }),
    ("SLOT_EXHAUSTED, no slot failed or empty", |s| {
        s.is(Exhausted, Degraded) && !s.says("repaired")
    }),
    ("SLOT_EXHAUSTED, a candidate works", |s| s.stays(Exhausted) && s.says("repaired")),
    ("SLOT_EXHAUSTED, a candidate fills the last", |s| {
        s.is(Exhausted, Degraded) && s.says("repaired")
    }),
    ("DIRECT_EMERGENCY, always", |s| s.is(Emergency, Recovery)),
    ("BOOTSTRAP_RECOVERY, next strategy", |s| s.stays(Recovery) && s.says("bootstrap-failed")),
    ("BOOTSTRAP_RECOVERY, a slot is lent", |s| s.stays(Recovery) && s.says("lending")),
    ("BOOTSTRAP_RECOVERY, a lent one fails", |s| s.fails(Recovery)),
    ("BOOTSTRAP_RECOVERY, all slots", |s| s.is(Recovery, Normal)),
    ("BOOTSTRAP_RECOVERY, min slots", |s| s.is(Recovery, Degraded)),
    ("BOOTSTRAP_RECOVERY, fewer", |s| {
        s.stays(Recovery) && (s.says("too-few") || s.says("none-passed"))
    }),
    ("NORMAL, refresh asked", |s| s.is(Normal, Refresh) && s.says("refresh-asked")),
    ("DEGRADED_POOL, refresh asked", |s| s.is(Degraded, Refresh) && s.says("refresh-asked")),
    ("SLOT_EXHAUSTED, refresh asked", |s| s.is(Exhausted, Refresh) && s.says("refresh-asked")),
    ("retests pass in FULL_POOL_REFRESH", |s| s.from == Some(Refresh) && s.says("false-alarm")),
    ("retests pass in DEGRADED_POOL", |s| s.from == Some(Degraded) && s.says("false-alarm")),
    ("retests pass in SLOT_EXHAUSTED", |s| s.from == Some(Exhausted) && s.says("false-alarm")),
    ("retests pass in BOOTSTRAP_RECOVERY", |s| s.from == Some(Recovery) && s.says("false-alarm")),
];

/// Rows that none of these steps is of.
pub fn missing(sights: &BTreeSet<Sight>) -> Vec<&'static str> {
    ROWS.iter().filter(|(_, is)| !sights.iter().any(is)).map(|(name, _)| *name).collect()
}

/// Every code of a reason, as the program's source has them.
pub fn codes() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/pool/reason.rs");
    let (_, rest) = source.split_once("pub fn code(&self)").unwrap();
    let (body, _) = rest.split_once("\n    }\n").unwrap();
    body.lines().filter_map(|line| line.split('"').nth(1)).collect()
}
