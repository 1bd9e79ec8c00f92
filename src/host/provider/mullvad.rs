//! Mullvad's lists of relays, in each of the shapes that it publishes.
//!
//! **Invariant:** a relay that is out of service is not offered; the port is one that all relays
//! listen on.

use super::entry::{Offer, OwnEnd};
use super::listing::MAX_ENTRIES;
use super::shape::{self, Keyed, Loose, Raws, text};
use crate::policy::provider::Place;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Inside the ranges of every published list.
const PORT: u16 = 51_820;

/// The app's list and version 2 have `locations` and `wireguard`, version 1 has `countries`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Document<'a> {
    #[serde(borrow)]
    countries: Option<Raws<'a>>,
    #[serde(borrow)]
    locations: Option<Keyed<'a>>,
    #[serde(borrow)]
    wireguard: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireGuard<'a> {
    #[serde(borrow)]
    relays: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Country<'a> {
    name: Option<Loose>,
    code: Option<Loose>,
    #[serde(borrow)]
    cities: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct City<'a> {
    name: Option<Loose>,
    code: Option<Loose>,
    #[serde(borrow)]
    relays: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Location {
    country: Option<Loose>,
    city: Option<Loose>,
}

/// The key has another name in the flat list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Relay {
    hostname: Option<Loose>,
    #[serde(rename = "type")]
    kind: Option<Loose>,
    active: Option<Loose>,
    location: Option<Loose>,
    country_name: Option<Loose>,
    country_code: Option<Loose>,
    city_name: Option<Loose>,
    city_code: Option<Loose>,
    ipv4_addr_in: Option<Loose>,
    public_key: Option<Loose>,
    pubkey: Option<Loose>,
}

pub(super) fn read(body: &[u8], port: Option<u16>, own: &OwnEnd) -> Result<Vec<Offer>, String> {
    let mut offers = Vec::new();
    let mut take = |raw: &RawValue, place: &dyn Fn(&str) -> Place| {
        let number = offers.len() + 1;
        if number > MAX_ENTRIES + 1 {
            return;
        }
        offers.extend(match shape::entry::<Relay>(raw) {
            Some(relay) => offer(relay, place, port.unwrap_or(PORT), own),
            None => Some(Offer::misshapen(number)),
        });
    };
    if body.iter().find(|byte| byte.is_ascii_graphic()) == Some(&b'[') {
        for raw in shape::read::<Raws<'_>>(body)?.0 {
            take(raw, &|_| Place::default());
        }
        return Ok(offers);
    }
    let document: Document<'_> = shape::read(body)?;
    if let Some(countries) = document.countries {
        for country in countries.0.into_iter().filter_map(shape::entry::<Country<'_>>) {
            let (country_name, country_code) = (text(country.name), text(country.code));
            for city in country.cities.0.into_iter().filter_map(shape::entry::<City<'_>>) {
                let place = Place {
                    country: country_name.clone(),
                    country_code: country_code.clone(),
                    city: text(city.name),
                    city_code: text(city.code),
                };
                for raw in city.relays.0 {
                    take(raw, &|_| place.clone());
                }
            }
        }
        return Ok(offers);
    }
    let locations = document.locations.unwrap_or_default().0;
    let relays = document.wireguard.and_then(shape::entry::<WireGuard<'_>>);
    let relays = relays.ok_or("it has neither countries nor wireguard relays: another list?")?;
    let place = |key: &str| {
        let location = locations.get(key).and_then(|raw| shape::entry::<Location>(raw));
        let location = location.unwrap_or_default();
        // A key is the codes of country and city: se-got.
        let codes = key.split_once('-').map(|(a, b)| (a.to_owned(), b.to_owned()));
        let (country_code, city_code) = codes.unzip();
        Place {
            country: text(location.country),
            country_code,
            city: text(location.city),
            city_code,
        }
    };
    for raw in relays.relays.0 {
        take(raw, &place);
    }
    Ok(offers)
}

fn offer(relay: Relay, place: &dyn Fn(&str) -> Place, port: u16, own: &OwnEnd) -> Option<Offer> {
    let is = |loose: Option<Loose>, wished: &str| {
        text(loose).is_none_or(|text| text.eq_ignore_ascii_case(wished))
    };
    if !is(relay.active, "true") || !is(relay.kind, "wireguard") {
        return None;
    }
    let known = place(&text(relay.location).unwrap_or_default());
    let place = Place {
        country: text(relay.country_name).or(known.country),
        country_code: text(relay.country_code).or(known.country_code),
        city: text(relay.city_name).or(known.city),
        city_code: text(relay.city_code).or(known.city_code),
    };
    let key = text(relay.public_key).or(text(relay.pubkey));
    Some(Offer::server(text(relay.hostname), place, text(relay.ipv4_addr_in), port, key, own))
}
