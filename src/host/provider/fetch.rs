//! Asks a source in the network: its places in order, within one deadline.
//!
//! **Invariant:** what is sent goes to the hosts that the policy names and to no other, however an
//! answer redirects; a body counts only when all of it came.

use super::entry::{Offer, OwnEnd};
use super::{MAX_LIST, NoList, Offers, Trouble};
use crate::host::files;
use crate::host::http::{self, Answer, Ask, AskFailure, Certificate, Parcel, Verb, Via};
use crate::host::resolve;
use crate::kernel::read::sha256;
use crate::observation::{ListQuestion, ListVia, Validators};
use crate::policy::provider::Asking;
use crate::url::Target;
use anyhow::Context as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// More redirects than this are a circle.
const MAX_REDIRECTS: usize = 3;

/// A resolver that works answers from near by.
const NAMES_DEADLINE: Duration = Duration::from_secs(2);

/// A bundle of certificates of a whole system has 220 KiB.
const MAX_CERTIFICATES: usize = 1024 * 1024;

/// Statuses by which a server says who it asked for.
const UNAUTHORIZED: [u16; 2] = [401, 403];

/// How a source is asked.
pub(super) struct Fetch<'a> {
    question: &'a ListQuestion,
    asking: Asking<'a>,
    roots: Vec<Certificate<'static>>,
    /// A hash of all that candidates are made of besides the list.
    of: String,
    end: Instant,
}

/// What the body of an answer holds.
pub(super) enum Page {
    /// The list.
    List(Vec<Offer>),
    /// Where the list is, on the same host.
    Elsewhere(Target),
}

impl<'a> Fetch<'a> {
    pub(super) fn new(question: &'a ListQuestion, own: Option<&OwnEnd>) -> Result<Self, NoList> {
        let asking = question.provider.asking().context("a source on this machine was asked")?;
        let roots = match asking.ca_file {
            None => Vec::new(),
            Some(path) => files::read_bounded(path, MAX_CERTIFICATES)
                .map_err(|why| why.to_string())
                .and_then(|pem| http::certificates(&pem))
                .map_err(|why| Trouble::here(format!("ca_file {}: {why}", path.display())))?,
        };
        let of = made_of(question, own);
        let end = Instant::now().checked_add(asking.timeout).context("a timeout without end")?;
        Ok(Self { question, asking, roots, of, end })
    }

    /// The same fetch, of which the list is made with an end that had to be asked for first.
    pub(super) fn with_end(self, own: &OwnEnd) -> Self {
        Self { of: made_of(self.question, Some(own)), ..self }
    }

    /// The list of the first place that has one which `read` understands.
    pub(super) fn list(
        &self,
        headers: &[(&str, &str)],
        read: impl Fn(&Target, &[u8]) -> Result<Vec<Offer>, String>,
    ) -> Result<Offers, NoList> {
        self.list_or_next(headers, |url, body| read(url, body).map(Page::List))
    }

    /// As [`Self::list`], where `read` may find that the list is in another file of the same host.
    pub(super) fn list_or_next(
        &self,
        headers: &[(&str, &str)],
        read: impl Fn(&Target, &[u8]) -> Result<Page, String>,
    ) -> Result<Offers, NoList> {
        self.try_each(|url, end| {
            let of = sha256(format!("{} {url}", self.of).as_bytes());
            let known = self.question.known.as_ref().filter(|known| known.of == of);
            let mut conditional = headers.to_vec();
            if let Some(known) = known {
                conditional.extend(known.etag.as_deref().map(|etag| ("If-None-Match", etag)));
                let since = known.last_modified.as_deref();
                conditional.extend(since.map(|since| ("If-Modified-Since", since)));
            }
            let parcel = Parcel { verb: Verb::Get, headers: &conditional, body: None };
            let answer = self.ask(url, &parcel, end)?;
            if answer.status == 304 && known.is_some() {
                return Err(NoList::Unchanged);
            }
            let validators = (answer.etag.is_some() || answer.last_modified.is_some()).then(|| {
                let (etag, last_modified) = (answer.etag.clone(), answer.last_modified.clone());
                Validators { etag, last_modified, of }
            });
            let body = Self::good(url, answer)?;
            let next = match read(url, &body).map_err(|why| unread(url, &why))? {
                Page::List(entries) => {
                    return Ok(Offers { entries, notes: Vec::new(), validators });
                }
                Page::Elsewhere(next) => next,
            };
            let parcel = Parcel { verb: Verb::Get, headers, body: None };
            let body = Self::good(&next, self.ask(&next, &parcel, end)?)?;
            match read(&next, &body).map_err(|why| unread(&next, &why))? {
                // What the first file is does not tell whether this one changed.
                Page::List(offers) => Ok(offers.into()),
                Page::Elsewhere(_) => {
                    Err(unread(&next, "it points to another file, as did the first").into())
                }
            }
        })
    }

    /// Tries the places in order until one has what is wanted or wishes to be left alone. Each has
    /// an even share of the time that is left.
    pub(super) fn try_each<T>(
        &self,
        attempt: impl Fn(&Target, Instant) -> Result<T, NoList>,
    ) -> Result<T, NoList> {
        let urls = &self.asking.urls;
        let mut troubles: Vec<Trouble> = Vec::new();
        for (url, others) in urls.iter().zip((1..=urls.len()).rev()) {
            let share = self.left() / u32::try_from(others).unwrap_or(u32::MAX);
            let end = Instant::now().checked_add(share).unwrap_or(self.end);
            match attempt(url, end) {
                Err(NoList::Unavailable(trouble)) => {
                    let is_over = trouble.is_final;
                    troubles.push(trouble);
                    if is_over {
                        break;
                    }
                }
                done @ (Ok(_) | Err(NoList::Unchanged)) => return done,
            }
        }
        Err(all_of(&troubles).into())
    }

    /// Asks one place, and where that redirects to as long as it is the same host.
    pub(super) fn ask(
        &self,
        url: &Target,
        parcel: &Parcel<'_>,
        end: Instant,
    ) -> Result<Answer, Trouble> {
        let left = end.saturating_duration_since(Instant::now());
        let addresses = self.addresses(url, left)?;
        let mut at = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let timeout = end.saturating_duration_since(Instant::now());
            let via = match &self.question.via {
                None => Via::Main,
                Some(ListVia { device, mark: None }) => Via::Device(device),
                Some(ListVia { device, mark: Some(mark) }) => Via::DeviceMark(device, *mark),
            };
            let url = at.as_str();
            let ask = Ask { url, via, timeout, max_body: MAX_LIST, addresses: &addresses };
            let answer = http::send_trusting(&ask, parcel, &self.roots).map_err(|failure| {
                // Somebody who hangs up in the middle of an answer has answered.
                let answered = at.is_https() && matches!(failure, AskFailure::Protocol(_));
                let why = format!("{}: {failure}", at.host());
                Trouble { why, answered, ..Trouble::default() }
            })?;
            let is_followed = match parcel.verb {
                Verb::Get => matches!(answer.status, 301 | 302 | 303 | 307 | 308),
                Verb::Put | Verb::Patch | Verb::Post | Verb::Delete => {
                    matches!(answer.status, 307 | 308)
                }
            };
            match &answer.location {
                Some(location) if is_followed => at = next(&at, location)?,
                Some(_) | None => return Ok(answer),
            }
        }
        Err(Trouble::here(format!("{}: redirects more than {MAX_REDIRECTS} times", url.host())))
    }

    /// How much time is left for all of it.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The whole body of a good answer.
    pub(super) fn good(url: &Target, answer: Answer) -> Result<Vec<u8>, Trouble> {
        let host = url.host();
        if answer.status != 200 {
            let hint = if UNAUTHORIZED.contains(&answer.status) {
                ": the token or code is refused, write a new one into its file"
            } else {
                ""
            };
            return Err(Trouble {
                why: format!("{host}: answers {}{hint}", answer.status),
                // Portals send their page with these.
                answered: !matches!(answer.status, 300..=399 | 511),
                retry_after_sec: crate::host::retry_after::seconds(&answer),
                is_final: answer.status == 429,
            });
        }
        answer.into_whole_body().map_err(|failure| Trouble {
            why: format!("{host}: {failure}"),
            answered: url.is_https(),
            ..Trouble::default()
        })
    }

    /// The addresses of a place, the last good ones where they are known.
    fn addresses(&self, url: &Target, left: Duration) -> Result<Vec<IpAddr>, Trouble> {
        if let Some(address) = url.address() {
            return Ok(vec![address]);
        }
        let host = url.host();
        match self.question.names.get(host) {
            Some(known) if !known.is_empty() => return Ok(known.clone()),
            Some(_) | None => {}
        }
        let mut found = resolve::resolve(&[host.to_owned()], NAMES_DEADLINE.min(left));
        found
            .remove(host)
            .and_then(Result::ok)
            .ok_or_else(|| Trouble::here(format!("no address of {host} is known")))
    }
}

/// A hash of all that candidates are made of besides the list.
fn made_of(question: &ListQuestion, own: Option<&OwnEnd>) -> String {
    let own = own.map(ToString::to_string);
    let (provider, wanted) = (&question.provider, &question.wanted);
    sha256(format!("{provider:?} {wanted:?} {} {own:?}", question.amnezia).as_bytes())
}

/// What a place sent although it answered 200. Over plain HTTP that may have been anybody.
pub(super) fn unread(url: &Target, why: &str) -> Trouble {
    let why = format!("{}: {why}", url.host());
    Trouble { why, answered: url.is_https(), ..Trouble::default() }
}

/// What went wrong with all places, in one.
fn all_of(troubles: &[Trouble]) -> Trouble {
    let whys: Vec<&str> = troubles.iter().map(|trouble| trouble.why.as_str()).collect();
    Trouble {
        why: whys.join("; "),
        answered: troubles.iter().any(|trouble| trouble.answered),
        retry_after_sec: troubles.iter().find_map(|trouble| trouble.retry_after_sec),
        is_final: troubles.iter().any(|trouble| trouble.is_final),
    }
}

/// Where a redirect leads, when it stays with the host that was asked and others cannot listen in.
fn next(from: &Target, location: &str) -> Result<Target, Trouble> {
    let (scheme, rest) = from.as_str().split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let location = location.split('#').next().unwrap_or_default();
    let whole = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let path = from.path().split('?').next().unwrap_or_default();
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let refused = |why: String| Trouble {
        why: format!("{}: {why}", from.host()),
        answered: from.is_https(),
        ..Trouble::default()
    };
    let to = Target::try_from(whole).map_err(|why| refused(format!("redirects wrongly: {why}")))?;
    if !to.host().eq_ignore_ascii_case(from.host()) {
        return Err(refused(format!(
            "redirects to {}: write that address into the policy if it is the provider's",
            to.host()
        )));
    }
    let is_here = from.address().is_some_and(|address| address.is_loopback());
    let is_same = is_here && !from.is_https() && to.port() == from.port();
    if !(to.is_https() || is_same) {
        return Err(refused("redirects to plain http".to_owned()));
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_with_its_host() {
        let target = |text: &str| Target::try_from(text.to_owned()).unwrap();
        let from = target("https://a.example:8443/x/list?y=1");
        let to = |location: &str| next(&from, location).map(|to| to.as_str().to_owned());
        assert_eq!(to("/new").unwrap(), "https://a.example:8443/new");
        assert_eq!(to("new?z#frag").unwrap(), "https://a.example:8443/x/new?z");
        assert_eq!(to("//A.EXAMPLE/new").unwrap(), "https://A.EXAMPLE/new");
        assert_eq!(to("https://a.example/new").unwrap(), "https://a.example/new");
        for bad in [
            "https://b.example/new",
            "//b.example/new",
            "https://a.example.b.example/",
            "https://a.example@b.example/",
            "http://a.example/new",
            "file:///etc/passwd",
            "https://",
        ] {
            assert!(to(bad).is_err(), "{bad}");
        }
        let up = next(&target("http://a.example/"), "https://a.example/");
        assert_eq!(up.unwrap().as_str(), "https://a.example/");
        assert!(next(&target("http://a.example/"), "/new").is_err());
    }
}
