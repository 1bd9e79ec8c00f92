//! NordVPN's lists of servers, which it does not document, in both shapes; our own key, which it
//! tells to whom shows an access token.
//!
//! **Invariant:** only servers that are online and speak `WireGuard` are offered; the token goes to
//! the place that the policy names for it and to no other.

use super::entry::{Offer, OwnEnd};
use super::fetch::{Fetch, unread};
use super::shape::{self, Loose, Raws, text};
use super::{NoList, Offers, Trouble};
use crate::host::http::{Parcel, Verb};
use crate::host::secret::secret;
use crate::observation::ListQuestion;
use crate::policy::provider::{NordVpn, Place};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Instant;

/// The address of every client.
const ADDRESS: &str = "10.5.0.2/32";

/// The only one.
const PORT: u16 = 51_820;

/// What the lists call the protocol.
const WIREGUARD: &str = "wireguard_udp";

/// Version 2: what servers share stands once.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    servers: Option<Raws<'a>>,
    #[serde(borrow, default)]
    locations: Raws<'a>,
    #[serde(borrow, default)]
    technologies: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Server<'a> {
    name: Option<Loose>,
    hostname: Option<Loose>,
    station: Option<Loose>,
    status: Option<Loose>,
    #[serde(borrow)]
    locations: Raws<'a>,
    location_ids: Option<Loose>,
    #[serde(borrow)]
    technologies: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Location {
    id: Option<Loose>,
    country: Country,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Country {
    name: Option<Loose>,
    code: Option<Loose>,
    city: City,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct City {
    name: Option<Loose>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Technology<'a> {
    id: Option<Loose>,
    identifier: Option<Loose>,
    status: Option<Loose>,
    #[serde(borrow)]
    metadata: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Datum {
    name: Option<Loose>,
    value: Option<Loose>,
}

/// What version 2 says once.
#[derive(Default)]
struct Shared {
    places: BTreeMap<String, Place>,
    wireguard: BTreeSet<String>,
}

/// What the service offers.
pub(super) fn offers(nord: &NordVpn, question: &ListQuestion) -> Result<Offers, NoList> {
    let port = nord.port.map(NonZeroU16::get);
    let (fetch, own) = match (&nord.token_file, &nord.identity) {
        (Some(path), _) => {
            let token = secret(path)?;
            let fetch = Fetch::new(question, None)?;
            let own = own_end(nord, &fetch, &token)?;
            (fetch.with_end(&own), own)
        }
        (None, Some(identity)) => {
            let own = OwnEnd::read(identity, &[ADDRESS])?;
            (Fetch::new(question, Some(&own))?, own)
        }
        (None, None) => {
            return Err(Trouble::here("there is neither identity nor token_file").into());
        }
    };
    fetch.list(&[], |_, body| read(body, port, &own))
}

/// What the service says of the subscriber.
#[derive(Deserialize)]
struct Credentials {
    nordlynx_private_key: Option<Loose>,
}

/// Our own end, as the service tells it to whom shows the token. Half of the time is left for the
/// list.
fn own_end(nord: &NordVpn, fetch: &Fetch<'_>, token: &str) -> Result<OwnEnd, NoList> {
    let url = nord.credentials().context("there is no place to ask for the key")?;
    let basic = format!("Basic {}", STANDARD.encode(format!("token:{token}")));
    let parcel = Parcel { verb: Verb::Get, headers: &[("Authorization", &basic)], body: None };
    let end = Instant::now().checked_add(fetch.left() / 2).context("a timeout without end")?;
    let body = Fetch::good(&url, fetch.ask(&url, &parcel, end)?)?;
    let told: Credentials = shape::read(&body).map_err(|why| unread(&url, &why))?;
    let key = text(told.nordlynx_private_key).ok_or_else(|| {
        unread(&url, "it tells no nordlynx_private_key: is the subscription valid?")
    })?;
    Ok(OwnEnd::told(&key, &[ADDRESS])
        .map_err(|why| unread(&url, &format!("it tells no key: {why}")))?)
}

pub(super) fn read(body: &[u8], port: Option<u16>, own: &OwnEnd) -> Result<Vec<Offer>, String> {
    let mut shared = Shared::default();
    let servers = if body.iter().find(|byte| byte.is_ascii_graphic()) == Some(&b'[') {
        shape::read::<Raws<'_>>(body)?
    } else {
        let document: Document<'_> = shape::read(body)?;
        for location in document.locations.0.into_iter().filter_map(shape::entry::<Location>) {
            if let Some(id) = text(location.id) {
                shared.places.insert(id, place_of(location.country));
            }
        }
        for one in document.technologies.0.into_iter().filter_map(shape::entry::<Technology<'_>>) {
            if let Some(id) = text(one.id).filter(|_| is(one.identifier, WIREGUARD)) {
                shared.wireguard.insert(id);
            }
        }
        document.servers.ok_or("it has no servers: another list?")?
    };
    let port = port.unwrap_or(PORT);
    let all = servers.0.into_iter().zip(1..);
    Ok(all.filter_map(|(raw, number)| offer(raw, number, &shared, port, own)).collect())
}

fn is(loose: Option<Loose>, wished: &str) -> bool {
    text(loose).is_some_and(|text| text.eq_ignore_ascii_case(wished))
}

fn place_of(country: Country) -> Place {
    Place {
        country: text(country.name),
        country_code: text(country.code),
        city: text(country.city.name),
        city_code: None,
    }
}

fn offer(raw: &RawValue, number: usize, shared: &Shared, port: u16, own: &OwnEnd) -> Option<Offer> {
    let Some(server) = shape::entry::<Server<'_>>(raw) else {
        return Some(Offer::misshapen(number));
    };
    let is_out = |status: Option<Loose>| {
        text(status).is_some_and(|status| !status.eq_ignore_ascii_case("online"))
    };
    if is_out(server.status) {
        return None;
    }
    let mut technologies =
        server.technologies.0.into_iter().filter_map(shape::entry::<Technology<'_>>);
    let wireguard = technologies.find_map(|one| {
        let by_id = text(one.id).is_some_and(|id| shared.wireguard.contains(&id));
        let speaks = by_id || is(one.identifier, WIREGUARD);
        // The status of a technology is that of the server's daemon for it.
        (speaks && !is_out(one.status)).then_some(one.metadata)
    })?;
    let mut data = wireguard.0.into_iter().filter_map(shape::entry::<Datum>);
    let key = data.find_map(|datum| is(datum.name, "public_key").then(|| text(datum.value))?);
    let location = server.locations.0.first().and_then(|raw| shape::entry::<Location>(raw));
    let place = location.map(|location| place_of(location.country)).or_else(|| {
        let ids = server.location_ids?.texts()?;
        ids.iter().find_map(|id| shared.places.get(id)).cloned()
    });
    let (name, address) = (text(server.hostname).or(text(server.name)), text(server.station));
    Some(Offer::server(name, place.unwrap_or_default(), address, port, key, own))
}
