//! The moments that each kind of policy remembers, so that none is left behind in an earlier boot.
//!
//! **Invariant:** every field of what is remembered is named here, moment or not, so that a new one
//! does not compile until somebody has said which of both it is.

use crate::chain::marks::{Grown, Mark, Marks};
use crate::chain::state::{ChainState, HopPause, HopState};
use crate::dns::state::{DnsState, Host, HostPause, Leave, Member, Moved, Node, Streak};
use crate::guard::state::{GuardState, Said, Wait};
use crate::pool::candidate::{List, Tested};
use crate::pool::standby::Standby;
use crate::pool::state::{Bootstrap, FailedWay, PoolState, Quarantined, Slot};
use crate::proxy::Shown;
use crate::selector::activity::{Activity, Measure};
use crate::selector::state::{ChannelState, SelectorState};
use crate::time::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What remembers moments.
pub trait Moments {
    /// Shows each of them, to be changed.
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment));
}

impl Moments for Moment {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        see(self);
    }
}

impl<T: Moments> Moments for Option<T> {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        for one in self.iter_mut() {
            one.each_moment(see);
        }
    }
}

impl<T: Moments> Moments for Vec<T> {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        for one in self.iter_mut() {
            one.each_moment(see);
        }
    }
}

impl<K, T: Moments> Moments for BTreeMap<K, T> {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        for one in self.values_mut() {
            one.each_moment(see);
        }
    }
}

impl<T: Moments> Moments for Box<T> {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        self.as_mut().each_moment(see);
    }
}

impl<T: Moments + Clone> Moments for Arc<T> {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        Self::make_mut(self).each_moment(see);
    }
}

/// A type with all of its fields: those that hold moments, then those that hold none.
macro_rules! moments {
    ($($name:ident { $($moment:ident),+; $($other:ident),* })*) => {$(
        impl Moments for $name {
            fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
                let Self { $($moment,)+ $($other: _,)* } = self;
                $($moment.each_moment(see);)+
            }
        }
    )*};
}

moments! {
    PoolState {
        since, pool, fresh, short, slots, quarantine, refresh_tried_at, refresh_asked,
        none_serves_since, none_serves_seen, bootstrap, standby; mode, proven, settle,
        retired, last_generation, homes, egress, repair_events_since_full_refresh, wish,
        short_list, refresh_failed, ways_failed, refusals, refusal_wait_sec, surroundings,
        names, wan_exit_ip
    }
    Quarantined { since; name, why }
    Bootstrap { failed; transport }
    FailedWay { at; way, why, times }
    Slot {
        since, false_alarms, exit_ip_at; content, failures, failed, retests_failed,
        retests_passed, replaced, mtu_lowered, saturated, unknown, verdict, why, latency_ms,
        smoothed_ms, exit_ip, counters
    }
    Standby {
        since, undone_at; candidate, up, reserves, verdict, why, latency_ms, unknown,
        failures
    }
    List { fetched_at, tested; generation, candidates, validators, left_out, struck }
    SelectorState {
        since, primary, reserve, checked_at, recovery_since, stay_since, failovers,
        quarantined_at, activity; mode, chosen, names, confirmed, settle, core_down, waits,
        addresses, wish
    }
    ChannelState { since, held_since; verdict, why, latency_ms, failing_ms, healthy_row }
    Activity { base; quiet_ms, rate }
    Measure { at; life, received, elsewhere }
    GuardState {
        since, backoff, give_back, rules_since, looked_at, said, shown; mode, names,
        confirmed, core_trouble, settle, failed_rounds, list, passes, uses, addresses, wish
    }
    Wait { since; seconds }
    Said { at; delay }
    Shown { at; verdict, why, latency_ms }
    DnsState { since, nodes, hosts; stands, discarded, addresses, wish }
    Node { since, checks; address, up, latency_ms, uptime }
    Streak { counted_at; verdict, failures, passes, why }
    Host {
        since, paused, stay, left, quarantined, leave, unproven, members, rotated, moved;
        mode, native, published, ours, ttl, unreadable, adopt
    }
    HostPause { at; why }
    Leave { at; sec }
    Moved { at; why }
    Member { serves, left, quarantined; credit }
    ChainState {
        since, hops, path, retries_refused; stands, path_failures, place, settle, trouble,
        addresses, tunnels, wish, under_way
    }
    HopState {
        since, stay, marks, changed, shown, paused; name, group, mode, is_new, confirmed,
        blamed, passes, tried, down_steps, winner, better
    }
    HopPause { at; why }
    Marks { marks, grown; }
    Mark { at; sec }
    Grown { returned; sec }
}

impl Moments for Tested {
    fn each_moment(&mut self, see: &mut dyn FnMut(&mut Moment)) {
        match self {
            Self::Passed { at, latency_ms: _ } | Self::Failed { at, why: _ } => see(at),
        }
    }
}
