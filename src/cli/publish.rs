//! What every policy of the folder shows, written where the site wants it.
//!
//! **Invariant:** publishing is a service: what goes wrong with it is said, and fails no step.

use super::kind::{self, Manner, Work};
use super::{Places, complain, day, page};
use crate::host::clock;
use crate::host::policies::last_good;
use crate::host::publish::publish;
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::machine::Machine;
use crate::measure::{self, Family, Samples};
use crate::policy::Site;
use crate::publish::{Published, documents};
use crate::record::Record;
use crate::status::{Standing, measured};
use crate::step::Order;
use crate::time::Moment;
use std::collections::BTreeMap;

/// What is shown is what the last step wrote, whoever stepped it.
const MANNER: Manner = Manner { adopt: true, now: true };

/// Publishes, where the site says so.
pub(super) fn all(places: &Places, site: &Site) {
    if let Some(file) = &site.page {
        page::write(places, file);
    }
    if site.publish_dir.is_none() && site.textfile_dir.is_none() {
        return;
    }
    let all = match clock::now() {
        Ok(now) => shown(places, now, site.publish_dir.is_some()),
        Err(error) => return complain(&format!("{error:#}")),
    };
    if let Some(folder) = &site.textfile_dir {
        let text = measure::text(all.samples, all.now.at);
        let written = publish("textfile_dir", folder, &[(measure::FILE, text)]);
        tell(written);
    }
    if let Some(folder) = &site.publish_dir {
        tell(all.published.and_then(|published| {
            let documents = documents(&published)?;
            publish("publish_dir", folder, &documents)
        }));
    }
}

fn tell(done: anyhow::Result<()>) {
    if let Err(error) = done {
        complain(&format!("{error:#}"));
    }
}

/// What all policies of the folder show.
struct All {
    now: Moment,
    /// What stays as it is while one of them cannot be read.
    published: anyhow::Result<BTreeMap<crate::names::PolicyName, Published>>,
    samples: Vec<Samples>,
}

fn shown(places: &Places, now: Moment, is_published: bool) -> All {
    let state_dir = places.state_dir();
    let (mut published, mut samples) = (Ok(BTreeMap::new()), Vec::new());
    for found in places.find(&[]) {
        let is_valid = found.is_ok();
        // What is wrong with a policy is said when it is stepped.
        let found = match found {
            Ok(found) => found,
            Err(unusable) => {
                let Some(found) = last_good(&state_dir, &unusable) else {
                    let named = unusable.policy.iter();
                    samples.extend(named.map(|(name, _)| validity(&Samples::named(name), false)));
                    continue;
                };
                found
            }
        };
        let shown = kind::with(&found, &state_dir, MANNER, Show { now: &now, is_published });
        samples.push(validity(&shown.samples, is_valid));
        published = match (published, shown.published) {
            (Ok(mut all), Ok(one)) => {
                all.insert(found.name, one);
                Ok(all)
            }
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        };
    }
    All { now, published, samples }
}

/// With whether the policy's file can be used.
fn validity(samples: &Samples, is_valid: bool) -> Samples {
    let mut samples = samples.clone();
    samples.set(Family::PolicyValid, &[], is_valid);
    samples
}

/// What one policy shows.
struct Shown {
    published: anyhow::Result<Published>,
    samples: Samples,
}

struct Show<'a> {
    now: &'a Moment,
    /// Whether documents are wanted, for which the day is kept.
    is_published: bool,
}

impl Work for Show<'_> {
    type Done = Shown;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        let folder = Folder::new(order.state_dir, order.name.clone());
        let (record, is_in_flight) = match read_only::<Record<M::State>>(&folder, M::KIND.as_str())
        {
            ReadOnly::Newer { found, known } => {
                let why = anyhow::anyhow!(
                    "state of {} has format version {found}, newer than {known}: what is published stays as it is",
                    order.name
                );
                let samples = Samples::about(order.name, M::KIND.as_str(), Standing::Stale);
                return Shown { published: Err(why), samples };
            }
            ReadOnly::Seen { loaded, is_in_flight, .. } => {
                (loaded.body().cloned().unwrap_or_default(), is_in_flight)
            }
        };
        let (status, _) = M::status(order.name, order.policy, &record, self.now);
        let mut samples = M::measured(&status);
        let interval = M::rhythm(order.policy, record.machine.as_ref()).interval;
        samples.set(Family::PolicyInterval, &[], measured(interval));
        samples.set(Family::PolicyInFlight, &[], is_in_flight);
        let published = if self.is_published {
            let last = record.last_step.as_ref().map(|last| last.at.at);
            day::counted(&folder, last, &M::shown(&status))
                .map(|day| M::published(&status).with(&day, self.now.at))
        } else {
            Ok(Published::default())
        };
        Shown { published, samples }
    }
}
