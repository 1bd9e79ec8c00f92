//! IVPN's list of servers, version 5.
//!
//! **Invariant:** only `WireGuard` hosts are offered.

use super::entry::{Offer, OwnEnd};
use super::listing::MAX_ENTRIES;
use super::shape::{self, Loose, Raws, text};
use crate::policy::provider::Place;
use serde::Deserialize;

/// One of several that all hosts listen on.
const PORT: u16 = 58_237;

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    wireguard: Option<Raws<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Gateway<'a> {
    country: Option<Loose>,
    country_code: Option<Loose>,
    city: Option<Loose>,
    #[serde(borrow)]
    hosts: Raws<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Machine {
    hostname: Option<Loose>,
    host: Option<Loose>,
    public_key: Option<Loose>,
}

pub(super) fn read(body: &[u8], port: Option<u16>, own: &OwnEnd) -> Result<Vec<Offer>, String> {
    let document: Document<'_> = shape::read(body)?;
    let gateways = document.wireguard.ok_or("it has no wireguard servers: another list?")?;
    let mut offers = Vec::new();
    for raw in gateways.0 {
        let Some(gateway) = shape::entry::<Gateway<'_>>(raw) else {
            offers.push(Offer::misshapen(offers.len() + 1));
            continue;
        };
        let place = Place {
            country: text(gateway.country),
            country_code: text(gateway.country_code),
            city: text(gateway.city),
            city_code: None,
        };
        if offers.len() > MAX_ENTRIES {
            break;
        }
        for raw in gateway.hosts.0 {
            offers.push(match shape::entry::<Machine>(raw) {
                None => Offer::misshapen(offers.len() + 1),
                Some(host) => {
                    let (name, address) = (text(host.hostname), text(host.host));
                    let (port, key) = (port.unwrap_or(PORT), text(host.public_key));
                    Offer::server(name, place.clone(), address, port, key, own)
                }
            });
        }
    }
    Ok(offers)
}
