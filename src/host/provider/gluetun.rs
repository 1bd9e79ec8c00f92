//! The servers file of gluetun: the flat form, the manifest, and the data file of one provider.
//!
//! **Invariant:** of a path in a manifest only the last name is used, beside the manifest.

use super::entry::{Offer, OwnEnd, Parts};
use super::fetch::{Fetch, Page};
use super::shape::{self, Keyed, Loose, Raws, text};
use super::{MAX_LIST, NoList, Offers};
use crate::host::files;
use crate::observation::ListQuestion;
use crate::policy::provider::{Gluetun, Place};
use crate::url::Target;
use anyhow::Context as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::Path;

/// One provider in the file, or all of a data file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    filepath: Option<Loose>,
    #[serde(borrow)]
    servers: Option<Raws<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    vpn: Option<Loose>,
    country: Option<Loose>,
    region: Option<Loose>,
    city: Option<Loose>,
    server_name: Option<Loose>,
    hostname: Option<Loose>,
    number: Option<Loose>,
    wgpubkey: Option<Loose>,
    ips: Option<Loose>,
}

/// What a file says of a provider.
enum Said {
    /// Its servers.
    Servers(Vec<Offer>),
    /// They are in a file of this name.
    In(String),
}

/// What the file offers.
pub(super) fn offers(file: &Gluetun, question: &ListQuestion) -> Result<Offers, NoList> {
    let own = OwnEnd::read(&file.identity, &[])?;
    if let Some(path) = &file.path {
        return Ok(on_this_machine(file, path, &own)?.into());
    }
    let fetch = Fetch::new(question, Some(&own))?;
    fetch.list_or_next(&[], |url, body| match read(body, file, &own)? {
        Said::Servers(offers) => Ok(Page::List(offers)),
        Said::In(name) => {
            let place = url.as_str().split('?').next().unwrap_or_default();
            let folder = place.rsplit_once('/').map_or(place, |(folder, _)| folder);
            // A bare host has no folder to cut off.
            let folder = if folder.ends_with('/') { place } else { folder };
            Target::try_from(format!("{folder}/{name}")).map(Page::Elsewhere)
        }
    })
}

fn on_this_machine(file: &Gluetun, path: &Path, own: &OwnEnd) -> anyhow::Result<Vec<Offer>> {
    let reading = |path: &Path| format!("reading gluetun's servers in {}", path.display());
    let open = |path: &Path| -> anyhow::Result<Said> {
        let bytes = files::read_bounded(path, MAX_LIST).with_context(|| reading(path))?;
        read(&bytes, file, own).map_err(anyhow::Error::msg).with_context(|| reading(path))
    };
    let name = match open(path)? {
        Said::Servers(offers) => return Ok(offers),
        Said::In(name) => name,
    };
    let folder = path.parent().unwrap_or(path);
    let (beside, below) = (folder.join(&name), folder.join("servers").join(&name));
    let place = if below.exists() { below } else { beside };
    match open(&place)? {
        Said::Servers(offers) => Ok(offers),
        Said::In(_) => anyhow::bail!("{} points to another file again", place.display()),
    }
}

/// The servers of a file that has them itself.
pub(super) fn read_servers(
    body: &[u8],
    file: &Gluetun,
    own: &OwnEnd,
) -> Result<Vec<Offer>, String> {
    match read(body, file, own)? {
        Said::Servers(offers) => Ok(offers),
        Said::In(name) => Err(format!("its servers are in another file: {name}")),
    }
}

fn read(body: &[u8], file: &Gluetun, own: &OwnEnd) -> Result<Said, String> {
    let document: Keyed<'_> = shape::read(body)?;
    let block = match document.0.get(&file.provider).and_then(|raw| shape::entry::<Block<'_>>(raw))
    {
        Some(block) => block,
        None if document.0.contains_key("servers") => shape::read::<Block<'_>>(body)?,
        None => return Err(format!("it has no servers of {}", file.provider)),
    };
    if let Some(servers) = block.servers {
        let all = servers.0.into_iter().zip(1..);
        let offers = all.filter_map(|(raw, number)| offer(raw, number, file, own)).collect();
        return Ok(Said::Servers(offers));
    }
    let path = text(block.filepath).unwrap_or_default();
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
        return Err(format!("it has no servers of {}, and no file of them", file.provider));
    }
    Ok(Said::In(name.to_owned()))
}

fn offer(raw: &RawValue, number: usize, file: &Gluetun, own: &OwnEnd) -> Option<Offer> {
    let Some(server) = shape::entry::<Entry>(raw) else {
        return Some(Offer::misshapen(number));
    };
    if text(server.vpn).is_none_or(|vpn| !vpn.eq_ignore_ascii_case("wireguard")) {
        return None;
    }
    let place = Place {
        country: text(server.country).or(text(server.region)),
        city: text(server.city),
        ..Place::default()
    };
    let hostname = text(server.hostname);
    let ips = server.ips.and_then(Loose::texts).unwrap_or_default();
    let ip = ips.iter().find(|ip| !ip.contains(':')).or(ips.first()).cloned();
    let number = text(server.number).unwrap_or_else(|| number.to_string());
    let name = text(server.server_name)
        .or_else(|| hostname.clone())
        .unwrap_or_else(|| format!("{} {number}", file.provider));
    let config = match (ip.or(hostname), file.port()) {
        (Some(host), Some(port)) => {
            Parts::peer(&host, port, text(server.wgpubkey)).config(Some(own))
        }
        (None, _) => Err("has no address".to_owned()),
        (_, None) => Err("has no port: write provider.gluetun.port".to_owned()),
    };
    Some(Offer { name, place, origin: None, config })
}
