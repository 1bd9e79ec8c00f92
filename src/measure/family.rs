//! The families of metrics: their names, and what they tell.
//!
//! **Invariant:** a name is of Prometheus' plain alphabet, begins with `egressctl_` and ends with its
//! base unit where it has one; it never changes its meaning, because alerts and panels ask for it.

/// Makes the enum and its tables, so that no family is without a name and a word of help.
macro_rules! families {
    ($($family:ident, $name:literal, $help:literal;)+) => {
        /// A family of metrics. All of them are gauges: a run knows how things are and keeps no
        /// counter. How often something changed, `changes()` of a time stamp tells.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Family {
            $(#[doc = $help] $family,)+
        }

        impl Family {
            /// All of them, in the order in which they are told.
            pub const ALL: &[Self] = &[$(Self::$family),+];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$family => concat!("egressctl_", $name),)+
                }
            }

            /// What it tells.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self {
                    $(Self::$family => $help,)+
                }
            }
        }
    };
}

families! {
    Build, "build_info", "Which version wrote this; always 1.";
    LastRunAt, "last_run_timestamp_seconds", "When this was written, in seconds since 1970.";
    PolicyStanding, "policy_standing",
        "Whether the policy stands so when it was last looked at: as-wished, degraded, stale or unprotected.";
    PolicyState, "policy_state", "Where the policy's machine stands; always 1. Host names and hops tell theirs apart.";
    PolicySince, "policy_state_since_timestamp_seconds", "Since when it stands there, in seconds since 1970.";
    PolicyPaused, "policy_paused", "Whether a person has paused the policy.";
    PolicyValid, "policy_valid", "Whether the policy's file can be used; if not, the last good one goes on.";
    PolicyInterval, "policy_check_interval_seconds", "How often a step is due; an interval of 0 counts as 10.";
    PolicyInFlight, "policy_change_in_flight",
        "Whether a change is under way, or was when a run died; it lasts where undoing fails, and a person is needed.";
    LastStepAt, "policy_last_step_timestamp_seconds", "When the last step began, in seconds since 1970.";
    LastStepTook, "policy_last_step_duration_seconds", "How long the last step took.";
    LastStepDone, "policy_last_step_success", "Whether the last step did its work: nothing to do, or applied.";
    Clients, "pool_clients", "Clients (of a spread prefix, its buckets) that leave so: by a slot, direct, or none.";
    Generation, "pool_generation", "Which list the slots are filled from.";
    Reserve, "pool_reserve", "Tested candidates that are neither in a slot nor quarantined.";
    Quarantined, "pool_quarantined", "Endpoints that serve nobody.";
    FetchedAt, "pool_fetched_timestamp_seconds", "When the list was fetched, in seconds since 1970.";
    Repairs, "pool_repairs_since_refresh", "Repairs since the last full refresh.";
    SlotUp, "slot_up", "Whether the slot serves; absent where that is not known.";
    SlotInfo, "slot_info", "Which endpoint fills the slot; always 1.";
    SlotClients, "slot_clients", "Clients that leave by the slot.";
    SlotFailures, "slot_failures", "Failed checks of the slot in a row.";
    SlotLatency, "slot_latency_seconds", "The fastest good answer of the slot's last healthy check.";
    SlotSince, "slot_since_timestamp_seconds", "Since when the slot is filled so, in seconds since 1970.";
    StandbyUp, "standby_up", "Whether the standby tunnel carries requests; absent where that is not known.";
    StandbyLatency, "standby_latency_seconds", "The fastest good answer of the standby's last healthy check.";
    ChannelUp, "channel_up", "Whether the channel passed its last check; absent where that is not known.";
    ChannelSelected, "channel_selected", "Whether new connections take the channel.";
    ChannelFailing, "channel_failing_seconds", "How long the channel has failed while the other one answered.";
    ChannelLatency, "channel_latency_seconds", "How long the channel's last healthy check took.";
    Received, "selector_receive_bytes_per_second", "What is received on the channel in use; absent where that is not known.";
    Failovers, "selector_failovers", "Failovers within the policy's window.";
    CoreUp, "guard_core_up", "Whether the proxy core could be used at the last look.";
    FailedRounds, "guard_failed_rounds", "Failed rounds in a row.";
    MemberSelected, "member_selected", "Whether the member is selected in the group.";
    MemberUp, "member_up", "Whether a real request through the member passed; absent where none was made or told.";
    MemberLatency, "member_latency_seconds", "How long the fastest good answer through the member took.";
    MemberDelay, "member_core_delay_seconds", "The delay that the proxy core measured itself.";
    HostState, "host_state", "Where the host name stands; always 1.";
    HostSince, "host_state_since_timestamp_seconds", "Since when it stands there, in seconds since 1970.";
    HostAtNative, "host_at_native", "Whether the record holds the node that the host name belongs to.";
    HostPaused, "host_paused", "Whether the host name is left alone.";
    HostMoves, "host_moves", "How often the host name left its node within the policy's window.";
    NodeUp, "node_up", "Whether the node is up; absent where it was not checked.";
    NodeFailures, "node_failures", "Failed checks of the node in a row.";
    NodeLatency, "node_latency_seconds", "How long the node's last passed check took.";
    NodeUptime, "node_uptime_ratio", "Passed checks of the last 24 hours.";
    PathUp, "path_up", "Whether requests pass all hops; absent where that is not known.";
    PathLatency, "path_latency_seconds", "The fastest good answer through all hops.";
    HopState, "hop_state", "Where the hop stands; always 1.";
    HopSince, "hop_state_since_timestamp_seconds", "Since when it stands there, in seconds since 1970.";
    HopPreferred, "hop_at_preferred", "Whether the node that carries is the preferred one.";
    HopPaused, "hop_paused", "Whether the hop is left alone.";
    HopNodeCarries, "hop_node_carries", "Whether the node carries.";
    HopNodeUp, "hop_node_up", "Whether a request through the hops before it and the node passed; absent where that is not known.";
    HopNodeLatency, "hop_node_latency_seconds", "The fastest good answer through the node.";
    HopNodeMarked, "hop_node_marked", "Whether the node failed lately and is not returned to.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_plain_and_told_once() {
        let names: BTreeSet<&str> = Family::ALL.iter().map(|family| family.name()).collect();
        assert_eq!(names.len(), Family::ALL.len());
        for family in Family::ALL {
            let (name, help) = (family.name(), family.help());
            let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(is_plain && help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
    }
}
