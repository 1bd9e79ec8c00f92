//! `egressctl check`: the policies, the machine and the probes, and what mends them.
//!
//! **Invariant:** nothing is changed or made; what is wrong with the machine is said once, however
//! many policies suffer from it.

use super::kind::{self, Manner, Work};
use super::{CheckArgs, Places, complain, note, say};
use crate::chain::Chain;
use crate::check::any::{self, Stepped};
use crate::check::dns::DnsFacts;
use crate::check::machine::Machine;
use crate::check::pool::PoolFacts;
use crate::check::{self, Checked, Code, Finding, Needs, Subject};
use crate::dns::Dns;
use crate::host::examine;
use crate::host::examine::machine::{States, machine, states};
use crate::host::examine::pool as look;
use crate::host::policies::{Found, site};
use crate::host::side_by_side;
use crate::host::{notify, publish};
use crate::machine::Machine as _;
use crate::names::PolicyName;
use crate::observation::{Observation, Realm};
use crate::outcome::Exit;
use crate::policy::selector::Driver;
use crate::policy::{ChainPolicy, DnsPolicy, Kind, Policy, PoolPolicy, SelectorPolicy, Site};
use crate::pool::Pool;
use crate::selector::Selector;
use crate::step::{Order, Survey, survey};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// A policy is examined at any time.
const MANNER: Manner = Manner { adopt: true, now: true };

/// Everything is well.
const SOUND: u8 = 0;
/// Something was found.
const FINDINGS: u8 = 1;

/// Prints what is wrong, and gives the worst of it.
pub(super) fn check(places: &Places, args: &CheckArgs) -> u8 {
    let all = places.find(&args.wanted.policies);
    let usable: Vec<&Found> = all.iter().filter_map(|found| found.as_ref().ok()).collect();
    usable.iter().copied().for_each(note);
    let mut is_invalid = false;
    let mut reports = Vec::new();
    for unusable in all.iter().filter_map(|found| found.as_ref().err()) {
        complain(&unusable.to_string());
        reports.push(Checked::unusable(&unusable.name, &unusable.why));
        is_invalid = true;
    }
    let of_site = site(&places.policy_dir);
    if let Err(unusable) = &of_site {
        complain(&unusable.to_string());
        reports.push(Checked::unusable(&unusable.name, &unusable.why));
        is_invalid = true;
    }
    let of_site: Vec<Finding> =
        of_site.ok().flatten().map(|(_, site)| site_findings(&site)).unwrap_or_default();
    if !usable.is_empty() {
        match examined(places, &usable, of_site) {
            Ok((of_machine, of_policies)) => {
                reports.extend(of_policies);
                reports = gathered(of_machine, reports, args.json && all.len() == 1);
            }
            Err(error) => {
                complain(&format!("{error:#}"));
                return FINDINGS;
            }
        }
    }
    show(&reports, args.json, all.len() > 1);
    if is_invalid {
        Exit::Invalid.code()
    } else if reports.iter().all(Checked::is_sound) {
        SOUND
    } else {
        FINDINGS
    }
}

/// What is wrong with what the site names.
fn site_findings(site: &Site) -> Vec<Finding> {
    let page = site.page.as_deref().and_then(Path::parent);
    let folders = [
        (Code::PageFolder, "the folder of page,", page),
        (Code::PublishDir, "publish_dir", site.publish_dir.as_deref()),
        (Code::TextfileDir, "textfile_dir", site.textfile_dir.as_deref()),
    ];
    let folders = folders.into_iter().filter_map(|(code, key, folder)| {
        let (what, mend) = publish::unusable(key, folder?)?;
        Some(Finding::new(code, what, mend))
    });
    let mute = |sink| {
        let (what, mend) = notify::unusable(sink)?;
        Some(Finding::new(Code::Notify, what, mend))
    };
    let open = site.notify.iter().flat_map(notify::open_secrets).map(|path| {
        let shown = path.display();
        let what = format!("notify: {shown} can be read by other users");
        Finding::new(Code::SecretOpen, what, format!("chown root: {shown}; chmod 600 {shown}"))
    });
    folders.chain(site.notify.iter().filter_map(mute)).chain(open).collect()
}

/// Puts the machine's report in front, or into the only policy's.
fn gathered(machine: Checked, policies: Vec<Checked>, is_one: bool) -> Vec<Checked> {
    if is_one {
        return policies.into_iter().map(|policy| policy.with(machine.clone())).collect();
    }
    std::iter::once(machine).chain(policies).collect()
}

fn show(reports: &[Checked], json: bool, several: bool) {
    if !json {
        // What is wrong with an unusable policy has been said.
        let told =
            reports.iter().filter(|report| !matches!(report.subject, Subject::Policy(_, None)));
        for report in told {
            say(&report.to_string());
        }
        return;
    }
    let text = match reports {
        [one] if !several => serde_json::to_string(one),
        all => serde_json::to_string(all),
    };
    match text {
        Ok(text) => say(&text),
        Err(error) => complain(&format!("the report cannot be written: {error}")),
    }
}

/// Examines the policies side by side, then the machine for what they need of it.
fn examined(
    places: &Places,
    usable: &[&Found],
    of_site: Vec<Finding>,
) -> anyhow::Result<(Checked, Vec<Checked>)> {
    let state_dir = places.state_dir();
    let states = states(&state_dir);
    let names: Vec<PolicyName> = usable.iter().map(|found| found.name.clone()).collect();
    let machine = machine(&names, &states)?;
    let each = side_by_side(usable, |found| one(found, &state_dir, &machine, &states));
    let mut needs = Needs::default();
    let mut reports = Vec::new();
    for (found, examined) in usable.iter().zip(each) {
        let (of, report) = examined?;
        let touches = kind::with(found, &state_dir, MANNER, TouchesTheKernel);
        let kernel = touches.then(|| found.name.to_string()).into_iter().collect();
        needs = needs.and(Needs { kernel, ..of });
        reports.push(report);
    }
    let mut there: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
    there.extend(places.find(&[]).into_iter().flatten().map(|found| found.name.to_string()));
    let mut findings = check::machine::findings(&machine, &needs);
    findings.extend(of_site);
    findings.extend(check::orphans::findings(
        &states.left,
        &there,
        &machine.ruleset,
        &machine.links,
    ));
    Ok((Checked::new(Subject::Machine, findings, Vec::new()), reports))
}

/// The one match over kinds: those with things of their own to examine, and all others.
fn one(
    found: &Found,
    state_dir: &Path,
    machine: &Machine,
    states: &States,
) -> anyhow::Result<(Needs, Checked)> {
    match &found.policy {
        Policy::Pool(policy) => pool(found, policy, state_dir, machine, states),
        Policy::Selector(policy) => selector(found, policy, state_dir, machine),
        Policy::Guard(policy) => {
            let told = policy.source.is_none().then(|| examine::core::outline(&policy.core));
            let told = told.flatten();
            let own = |seen: &Observation| check::guard::findings(policy, seen, told.as_ref());
            kind::with(found, state_dir, MANNER, Common { machine, own: &own })
        }
        Policy::Chain(policy) => chain(found, policy, state_dir, machine),
        Policy::Dns(policy) => dns(found, policy, state_dir, machine),
    }
}

fn selector(
    found: &Found,
    policy: &SelectorPolicy,
    state_dir: &Path,
    machine: &Machine,
) -> anyhow::Result<(Needs, Checked)> {
    let (name, path) = (&found.name, found.path.as_path());
    let Manner { adopt, now } = MANNER;
    let order = Order::<Selector> { name, path, policy, state_dir, adopt, now };
    let survey = survey(&order)?;
    let interval = Selector::rhythm(policy, survey.record.machine.as_ref()).interval;
    let stepped = stepped(&order, &survey, interval, machine);
    let (core, needs) = match &policy.driver {
        Driver::Clash(driver) => (Some(examine::selector::core(driver)?), Needs::default()),
        Driver::Route(_) => {
            let tools = BTreeSet::from(["ip", "nft"]);
            (None, Needs { tools, helpful: BTreeSet::from(["conntrack"]), ..Needs::default() })
        }
    };
    let unit = core.as_ref().and_then(examine::selector::unit);
    let told = match &policy.driver {
        Driver::Clash(driver) => examine::core::outline(&driver.core).and_then(Result::ok),
        Driver::Route(_) => None,
    };
    let facts = check::selector::Facts {
        core: core.as_ref(),
        told: told.as_ref(),
        unit: unit.as_ref(),
        seen: &survey.seen,
        decided: survey.decided.as_ref(),
    };
    let mut all = any::findings(&stepped);
    all.extend(check::selector::findings(policy, &facts));
    let needs = Needs { interval: Some(interval), policies: vec![name.to_string()], ..needs };
    let subject = Subject::Policy(name.to_string(), Some(Kind::Selector));
    Ok((needs, Checked::new(subject, all, any::probes(&survey.seen))))
}

/// Whether a policy makes anything in the kernel, for which it needs rights.
struct TouchesTheKernel;

impl Work for TouchesTheKernel {
    type Done = bool;

    fn with<M: crate::machine::Machine>(self, order: &Order<'_, M>) -> bool {
        !M::realms(order.policy).is_empty()
    }
}

fn chain(
    found: &Found,
    policy: &ChainPolicy,
    state_dir: &Path,
    machine: &Machine,
) -> anyhow::Result<(Needs, Checked)> {
    let (name, path) = (&found.name, found.path.as_path());
    let Manner { adopt, now } = MANNER;
    let order = Order::<Chain> { name, path, policy, state_dir, adopt, now };
    let survey = survey(&order)?;
    let stepped = stepped(&order, &survey, policy.params.interval(), machine);
    let decided = survey.decided.as_ref();
    let known = survey.record.machine.as_ref();
    let facts = check::chain::Facts { name, policy, machine, seen: &survey.seen, decided, known };
    let mut all = any::findings(&stepped);
    // The path is judged leg by leg.
    all.retain(|finding| finding.code != Code::SlotSilent);
    all.extend(check::chain::findings(&facts));
    let subject = Subject::Policy(name.to_string(), Some(Kind::Chain));
    let mut probes = any::probes(&survey.seen);
    probes.retain(|probe| probe.probe == "wan");
    probes.extend(check::chain::probes(&facts));
    Ok((check::chain::needs(name, policy), Checked::new(subject, all, probes)))
}

/// What is examined in a policy of any kind.
struct Common<'a> {
    machine: &'a Machine,
    /// What else is wrong with a policy of its kind.
    own: &'a dyn Fn(&Observation) -> Vec<Finding>,
}

impl Work for Common<'_> {
    type Done = anyhow::Result<(Needs, Checked)>;

    fn with<M: crate::machine::Machine>(self, order: &Order<'_, M>) -> Self::Done {
        let survey = survey(order)?;
        let interval = M::rhythm(order.policy, survey.record.machine.as_ref()).interval;
        let stepped = stepped(order, &survey, interval, self.machine);
        let subject = Subject::Policy(order.name.to_string(), Some(M::KIND));
        let (mut found, probes) = (any::findings(&stepped), any::probes(&survey.seen));
        found.extend((self.own)(&survey.seen));
        let needs = Needs {
            interval: Some(interval),
            policies: vec![order.name.to_string()],
            ..Needs::default()
        };
        Ok((needs, Checked::new(subject, found, probes)))
    }
}

fn stepped<'a, M: crate::machine::Machine>(
    order: &'a Order<'_, M>,
    survey: &'a Survey<M::State>,
    interval: Duration,
    machine: &'a Machine,
) -> Stepped<'a, M::State> {
    Stepped {
        name: order.name,
        path: order.path,
        interval,
        now: &machine.now,
        record: &survey.record,
        damaged: survey.damaged.as_deref(),
        foreign: survey.foreign.as_deref(),
        is_in_flight: survey.is_in_flight,
        folder: look::folder(&order.state_dir.join(order.name.as_str())),
        seen: &survey.seen,
        unable: &survey.unable,
        blind: survey.blind.as_deref(),
    }
}

fn dns(
    found: &Found,
    policy: &DnsPolicy,
    state_dir: &Path,
    machine: &Machine,
) -> anyhow::Result<(Needs, Checked)> {
    let (name, path) = (&found.name, found.path.as_path());
    let Manner { adopt, now } = MANNER;
    let order = Order::<Dns> { name, path, policy, state_dir, adopt, now };
    let survey = survey(&order)?;
    let interval = Duration::from_secs(policy.params.check_interval_sec);
    let facts = DnsFacts {
        stepped: stepped(&order, &survey, interval, machine),
        policy,
        files: examine::dns::files(policy),
    };
    let subject = Subject::Policy(name.to_string(), Some(Kind::Dns));
    let (found, probes) = (check::dns::findings(&facts), check::dns::probes(&facts));
    Ok((check::dns::needs(name, policy, interval), Checked::new(subject, found, probes)))
}

fn pool(
    found: &Found,
    policy: &PoolPolicy,
    state_dir: &Path,
    machine: &Machine,
    states: &States,
) -> anyhow::Result<(Needs, Checked)> {
    let (name, path) = (&found.name, found.path.as_path());
    let Manner { adopt, now } = MANNER;
    let order = Order::<Pool> { name, path, policy, state_dir, adopt, now };
    let survey = survey(&order)?;
    let asked = survey.seen.lists().next().map(|(_, reading)| reading.clone());
    let folder = state_dir.join(name.as_str());
    let listed = if asked.is_some() { None } else { look::listed(policy, &folder) };
    let state = survey.decided.as_ref().or(survey.record.machine.as_ref());
    let endpoints = check::pool::endpoints_of(state, asked.as_ref().or(listed.as_ref()));
    let addresses = endpoints.keys().chain(&machine.resolvers).copied().collect();
    let others = states.left.iter().filter(|left| left.policy != *name);
    let recorded: Vec<Realm> = others.flat_map(|left| left.owned.realms.iter().copied()).collect();
    let interval = Duration::from_secs(policy.params.health_check_interval_sec);
    let facts = PoolFacts {
        stepped: stepped(&order, &survey, interval, machine),
        policy,
        machine,
        decided: survey.decided.as_ref(),
        ways: look::ways(&addresses),
        endpoints,
        files: look::files(policy),
        listed,
        problems: look::problems(policy),
        recorded,
    };
    let subject = Subject::Policy(name.to_string(), Some(Kind::Pool));
    let (found, probes) = (check::pool::findings(&facts), check::pool::probes(&facts));
    Ok((check::pool::needs(name, policy), Checked::new(subject, found, probes)))
}
