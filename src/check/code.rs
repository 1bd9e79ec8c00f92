//! The kinds of findings: their stable codes, how bad each is, and why it matters.
//!
//! **Invariant:** a code never changes its meaning; scripts compare it.

use serde::{Serialize, Serializer};
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Clients are not served, or are not protected.
    Error,
    /// It works, and will not in some case.
    Warning,
    /// Worth knowing; nothing is wrong.
    Note,
}

impl Severity {
    /// As reports say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Makes the enum and its table, so that no code is without a word, a severity and a reason.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident, $word:literal, $severity:ident, $why:literal;)+) => {
        /// A kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As reports say it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }

            /// How bad it is.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)+
                }
            }

            /// Why it matters.
            #[must_use]
            pub fn why(self) -> &'static str {
                match self {
                    $(Self::$name => $why,)+
                }
            }
        }
    };
}

codes! {
    /// The policy cannot be used.
    PolicyInvalid, "policy-invalid", Error,
        "the policy is not stepped; what it made stays as the last step left it";
    /// The machine could not be looked at.
    NotSeen, "not-seen", Error, "a step would fail at the same place";
    /// The machine cannot serve the policy.
    Unfit, "unfit", Error, "a step does nothing but say so";
    /// A program is missing.
    ToolMissing, "tool-missing", Error, "a step does its work with this program";
    /// A program that a step can do without is missing.
    ToolHelpful, "tool-wanted", Warning,
        "without it open flows of a slot that stopped serving are not ended, and hang until they time out";
    /// A program is older than any that was tried.
    ToolOld, "tool-old", Warning, "it may lack what a step asks of it; older versions were never tried";
    /// Rights are missing.
    NoRights, "rights-missing", Error, "without them nothing of the network can be changed";
    /// The kernel has no WireGuard and the policy counts on it.
    NoKernelWireGuard, "kernel-wireguard-missing", Error, "no tunnel can be made";
    /// There is no device for daemons to make tunnels with.
    NoTun, "tun-missing", Error, "a userspace WireGuard makes its interfaces through /dev/net/tun";
    /// The machine does not forward.
    ForwardingOff, "forwarding-off", Error, "the kernel drops what clients send, whatever the slots do";
    /// The reverse path of a slot is filtered strictly.
    RpFilter, "rp-filter", Warning,
        "answers that come in by the slot are dropped when the filter counts them as strays, so a good slot looks dead";
    /// The uplink looks replies up without their mark.
    SrcValidMark, "src-valid-mark", Warning,
        "the filter of reverse paths looks replies up without their mark and may drop what comes back by the uplink";
    /// The wall clock is behind.
    ClockBehind, "clock-behind", Error,
        "servers refuse handshakes whose time goes backwards, and certificates are not valid yet";
    /// networkd removes rules or routes of others.
    NetworkdForeign, "networkd-foreign", Warning,
        "when systemd-networkd starts anew it removes rules and routes that it did not make, until the next step puts them back";
    /// NetworkManager may manage our interfaces.
    NetworkManager, "networkmanager", Warning,
        "NetworkManager may take over a new interface, and remove its addresses and routes";
    /// Requests do not pass all hops of a chain.
    PathBroken, "path-broken", Error, "what clients send ends there";
    /// A node of a chain that does not carry does not pass either.
    BackupSilent, "backup-silent", Warning, "it cannot stand in for the node that carries";
    /// No timer steps the policies.
    TimerOff, "timer-off", Warning, "nobody steps: a dead tunnel stays in service until a person comes";
    /// The timer is slower than a policy wishes.
    TimerSlow, "timer-slow", Warning, "a policy is checked no more often than the timer fires";
    /// Nothing closes the clients at boot.
    BarrierOff, "barrier-off", Warning,
        "after a boot clients leave by the WAN in clear until the first step";
    /// The last step is long ago.
    NotStepped, "not-stepped", Warning, "nobody steps: a dead tunnel stays in service until a person comes";
    /// Something of ours that no policy claims.
    Orphan, "orphan", Warning, "nobody heals or removes it, and it may still close or lead clients";
    /// An interface has a name of ours and is a stranger's.
    InterfaceTaken, "interface-taken", Error, "a step does not touch a stranger's interface, and does nothing";
    /// A table of ours holds a stranger's route.
    TableUsed, "table-used", Error, "a stranger's route in a slot's table may lead its clients elsewhere";
    /// A stranger's rule looks into a table of ours.
    TableLooked, "table-looked-up", Warning,
        "packets that are not of our clients leave by a slot, or meet its closed table";
    /// Marks are used by others.
    MarkUsed, "mark-used", Error, "a flow that a stranger marks so leaves by a slot, or ours by the stranger's way";
    /// A stranger's rule stands among ours.
    PriorityUsed, "priority-used", Warning, "a stranger's rule among ours may be asked before them";
    /// Our protocol number is used elsewhere.
    ProtocolUsed, "protocol-used", Warning,
        "the number tells our rules and routes from others'; a tool that flushes it removes them together";
    /// A stranger's rule catches clients first.
    RuleFirst, "rule-first", Error, "what clients send is led away before a rule of ours is asked";
    /// A stranger's forward hook drops what clients send.
    ForwardDrops, "forward-drops", Error, "what clients send to a slot is dropped, whatever our own table accepts";
    /// A stranger's forward hook drops what clients send, unless a rule that is not understood accepts it.
    ForwardMayDrop, "forward-may-drop", Warning,
        "what clients send to a slot is dropped unless a rule there accepts it that could not be read here";
    /// Flows bypass the forward hook.
    FlowOffload, "flow-offload", Warning,
        "offloaded flows bypass the forward hook and with it the barrier; only the routing rules hold them then";
    /// A tunnel's packets do not fit into the uplink's.
    MtuLarge, "mtu-large", Warning, "full packets of the tunnel are sent in pieces or lost: small pages work, large ones hang";
    /// Nothing tells clients how small the uplink's packets are.
    MssUnclamped, "mss-unclamped", Warning,
        "what clients send by the WAN itself, as in Direct, hangs at the first full packet wherever the word that it is too large gets lost; through slots the size is told";
    /// An endpoint is reached through a slot.
    EndpointInSlot, "endpoint-in-slot", Error, "a tunnel whose own packets go into a tunnel of the pool fails with it, or loops";
    /// A resolver is reached through a slot only.
    ResolverInSlot, "resolver-in-slot", Warning, "no name can be resolved while the slot is down, so that nothing can bring it back";
    /// The LAN's resolver asks by the WAN.
    ResolverByWan, "resolver-by-wan", Warning,
        "the names that clients look up leave by the WAN in clear, although their packets do not";
    /// A client entry holds the gateway's own address.
    ClientOwnAddress, "client-own-address", Error,
        "what the gateway itself sends from that address is closed in like a client's";
    /// A client entry holds the address of this login.
    ClientIsLogin, "client-is-login", Warning,
        "a mistake in the first change may cut off the person who makes it";
    /// Fewer endpoints than slots.
    PoolSmall, "pool-small", Warning, "not every slot can be filled, and nothing can replace an endpoint that fails";
    /// No endpoint is left over.
    NoReserve, "no-reserve", Note, "an endpoint that fails cannot be replaced before a new list comes";
    /// A secret's file is missing or empty.
    SecretMissing, "secret-missing", Error, "without it the provider gives no tunnel";
    /// A secret can be read by others.
    SecretOpen, "secret-open", Warning, "every user of the machine can take the key, token or code";
    /// A file that the provider needs is missing.
    ProviderFile, "provider-file", Error, "there is nothing to fill a slot with";
    /// The provider gives no list.
    ProviderSilent, "provider-unavailable", Error, "no new endpoint can be had, so that failed ones are not replaced";
    /// An entry of the list cannot be used.
    EntryUnusable, "entry-unusable", Warning, "the endpoint is left out of the pool";
    /// One key is used for all slots.
    OneKey, "one-key", Note,
        "a provider that lets a key be on one server at a time serves the newest slot alone; one that counts connections counts one a slot";
    /// The state folder cannot be used.
    StateFolder, "state-folder", Error, "a step writes down what it changes before it does, and else changes nothing";
    /// The state is damaged.
    StateDamaged, "state-damaged", Warning, "the next step uses the state from before, or what the kernel shows";
    /// The state is another policy's or another version's.
    StateForeign, "state-foreign", Error, "a step refuses to touch it";
    /// A change is in flight.
    JournalLeft, "journal-left", Warning, "a run is under way or died; the next step only undoes what that left";
    /// A person paused the policy.
    Paused, "paused", Note, "nothing is changed or mended until resume";
    /// The uplink does not answer.
    WanSilent, "wan-silent", Error, "while no reference answers nothing is counted, moved or replaced";
    /// A slot, channel, member or node does not answer.
    SlotSilent, "slot-silent", Warning, "it does not carry requests now; steps count that and move what it serves";
    /// A name of the policy has no address.
    NameUnknown, "name-unknown", Warning, "what has no address cannot be asked";
    /// A proxy core does not answer.
    CoreSilent, "core-silent", Error, "while the core is not reached nothing is judged or selected";
    /// A group of a proxy core cannot be selected in.
    CoreGroup, "core-group", Error, "there is nothing to select in";
    /// A proxy core forgets what was selected.
    ChoicesForgotten, "choices-forgotten", Warning,
        "after a restart the core begins with its default, and a person who chose just that is not heard";
    /// A group of a proxy core cuts open connections.
    Interrupts, "interrupts", Warning, "each switch ends every connection that goes through the group, also those that work";
    /// The diagnosis of a channel leaves by another way.
    DiagnosisAstray, "diagnosis-astray", Error,
        "its checks tell of something else, so that a dead channel looks well, or a good one is left";
    /// The diagnosis of a channel may leave by another way.
    DiagnosisShared, "diagnosis-shared", Warning, "a check that is led elsewhere tells nothing of the channel";
    /// The unit of a proxy core is not started again.
    CoreUnitDies, "core-not-restarted", Warning,
        "a core that dies stays dead: its clients are not served, and nothing can be switched";
    /// An uplink cannot carry anything.
    UplinkGone, "uplink-gone", Warning, "the uplink counts as failed as long as it is so";
    /// The record of a host name cannot be read.
    RecordUnread, "record-unreadable", Error,
        "a host name whose record cannot be read is not moved when its node dies";
    /// A host name has no address record.
    RecordMissing, "record-missing", Error,
        "records are changed and never made, so the host name is left alone";
    /// A host name has more addresses than the policy publishes.
    RecordSeveral, "record-several", Error,
        "which of them are somebody else's nobody can tell, so the host name is left alone";
    /// A record points at none of the host's nodes.
    RecordForeign, "record-foreign", Warning,
        "somebody may need it as it is, so the host name is left alone until a person says otherwise";
    /// A record's ttl is longer than the policy's.
    TtlLong, "ttl-long", Warning,
        "clients stay on a dead node for as long as the record says, whatever the policy wants";
    /// A ttl of the policy is longer than its interval.
    TtlSlow, "ttl-slow", Note,
        "a move is over in seconds, and clients follow it when their resolvers ask again";
    /// The minimum stay is shorter than twice a ttl.
    StayShort, "stay-short", Warning,
        "a host name may move back before resolvers have followed the first move";
    /// A host name has no fallback.
    NoFallback, "no-fallback", Warning, "when its node dies there is nowhere to go";
    /// A fallback lives and does not serve in the native's place.
    FallbackUnfit, "fallback-unfit", Warning,
        "it is never used for the host name, so that fewer nodes stand behind it than it seems";
    /// A node fails its check.
    NodeSilent, "node-silent", Warning,
        "it serves no host name now; steps count that and move what it serves";
    /// A node cannot be checked.
    NodeUnjudged, "node-unjudged", Warning,
        "a check that cannot be made counts nothing, so that nobody sees the node die";
    /// The provider of a zone is asked too often.
    ApiRate, "api-rate", Warning,
        "Cloudflare takes 1200 requests in five minutes, people's at its dashboard included, and then refuses all for as long";
    /// The folder of what is published cannot be used.
    PublishDir, "publish-dir", Warning,
        "what a web server shows of host names and nodes is old, or is not shown";
    /// The folder of the status page cannot be used.
    PageFolder, "page-folder", Warning, "who looks at the page sees how things were, or nothing";
    /// The folder of the metrics is of no use.
    TextfileDir, "textfile-dir", Warning,
        "what Prometheus is told of the policies is old, or is not told";
    /// Somebody who is to be told cannot be.
    Notify, "notify", Warning, "a transition happens and nobody hears of it";
    /// A proxy core is steered from other machines without a secret.
    CoreOpen, "core-open", Error,
        "whoever reaches the port selects what clients go out by, and reads what they ask for";
    /// What a proxy core was told cannot be read.
    CoreUnseen, "core-unseen", Note,
        "whether others can steer it, and whether it keeps what was selected, is not known";
    /// What a guard helps does not choose by itself.
    NotAutomatic, "not-automatic", Warning,
        "when its pick dies nobody picks another, and once it was given control back requests fail again";
    /// A guard has nothing to tell a dead uplink by.
    NoReference, "no-reference", Note,
        "a dead uplink then looks like a group by which nothing passes, and members are tried for nothing";
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_kinds_share_a_code() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
    }
}
