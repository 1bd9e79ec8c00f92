//! JSON that others write: each entry is read alone, and each value of it for what it is.
//!
//! **Invariant:** memory is bounded by the text's length, not by how many values it holds; a value
//! of the wrong kind costs its entry and nothing more.

use super::entry::{Offer, OwnEnd, Parts, wg_quick_text};
use super::listing::MAX_ENTRIES;
use crate::policy::provider::Place;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The most values of a list inside an entry; addresses come in twos.
const MAX_VALUES: usize = 64;

/// A list, or an object with entries by key, of which each is read later.
#[derive(Default)]
pub(super) struct Raws<'a>(pub(super) Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Raws<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Raws<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Raws::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut raws = Vec::new();
                // One more than are read, so that the list says that there are more.
                while raws.len() <= MAX_ENTRIES {
                    match seq.next_element::<&'de RawValue>()? {
                        Some(raw) => raws.push(raw),
                        None => return Ok(Raws(raws)),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Raws(raws))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut raws = Vec::new();
                while let Some(_key) = map.next_key::<IgnoredAny>()? {
                    if raws.len() <= MAX_ENTRIES {
                        raws.push(map.next_value::<&'de RawValue>()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Raws(raws))
            }
        }
        from.deserialize_any(Entries)
    }
}

/// An object whose keys say something, of which each value is read later; of other things it has none.
#[derive(Default)]
pub(super) struct Keyed<'a>(pub(super) BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Keyed<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Keyed<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if pairs.len() <= MAX_ENTRIES {
                        pairs.insert(key, map.next_value::<&'de RawValue>()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Keyed(pairs))
            }
        }
        from.deserialize_any(Pairs)
    }
}

/// A value that may be anything.
pub(super) enum Loose {
    /// A text, or a number or a truth as one.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// Something else.
    Other,
}

impl Loose {
    /// The text that it is.
    pub(super) fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::List(_) | Self::Other => None,
        }
    }

    /// The texts that it is, one being a list of one.
    pub(super) fn texts(self) -> Option<Vec<String>> {
        match self {
            Self::Text(text) => Some(text.split(',').map(|part| part.trim().to_owned()).collect()),
            Self::List(texts) => Some(texts),
            Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Anything;
        impl<'de> Visitor<'de> for Anything {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Loose, E> {
                Ok(Loose::Text(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Loose, E> {
                Ok(Loose::Text(number.to_string()))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Loose, E> {
                Ok(Loose::Other)
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Loose, E> {
                Ok(Loose::Text(truth.to_string()))
            }

            fn visit_unit<E>(self) -> Result<Loose, E> {
                Ok(Loose::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loose, A::Error> {
                let mut texts = Vec::new();
                let mut all_are = true;
                while texts.len() < MAX_VALUES {
                    match seq.next_element::<Loose>()? {
                        Some(Loose::Text(text)) => texts.push(text),
                        Some(Loose::List(_) | Loose::Other) => all_are = false,
                        None => return Ok(if all_are { Loose::List(texts) } else { Loose::Other }),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Loose::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Loose::Other)
            }
        }
        from.deserialize_any(Anything)
    }
}

/// The text that an optional value is.
pub(super) fn text(loose: Option<Loose>) -> Option<String> {
    loose.and_then(Loose::text).filter(|text| !text.is_empty())
}

/// Reads a whole text, and says of one that is no such thing what it is instead.
pub(super) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    let body = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Err("the answer is empty".to_owned()),
        Some(b'<') => return Err("it is a page and no list: look at it in a browser".to_owned()),
        Some(_) => {}
    }
    serde_json::from_slice(body).map_err(|why| {
        let place = format!("line {} column {}", why.line(), why.column());
        match why.classify() {
            Category::Eof => format!("the list is cut off after {} bytes", bytes.len()),
            Category::Syntax | Category::Io => format!("it is not JSON at {place}"),
            // The words of the parser would quote the text.
            Category::Data => format!("it has not the shape of a list at {place}"),
        }
    })
}

/// Reads one entry. What is no such object has no more to say.
pub(super) fn entry<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// The common shape: a list, or an object that has it as `candidates`.
pub(super) fn candidates(bytes: &[u8], own: Option<&OwnEnd>) -> Result<Vec<Offer>, String> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        candidates: Option<Raws<'a>>,
    }
    let first = bytes.iter().find(|byte| byte.is_ascii_graphic());
    let raws = if first == Some(&b'{') {
        let object: Object<'_> = read(bytes)?;
        object.candidates.ok_or("it is an object without candidates")?
    } else {
        read::<Raws<'_>>(bytes)?
    };
    let all = raws.0.into_iter().zip(1_usize..);
    Ok(all.map(|(raw, number)| candidate(raw, number, own)).collect())
}

/// An entry of the common shape.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Common {
    name: Option<Loose>,
    country: Option<Loose>,
    city: Option<Loose>,
    config: Option<Loose>,
    endpoint: Option<Loose>,
    public_key: Option<Loose>,
    preshared_key: Option<Loose>,
    address: Option<Loose>,
    allowed_ips: Option<Loose>,
    private_key: Option<Loose>,
    mtu: Option<Loose>,
}

fn candidate(raw: &RawValue, number: usize, own: Option<&OwnEnd>) -> Offer {
    let read = entry::<Common>(raw);
    let fault = read.is_none();
    let common = read.unwrap_or_default();
    let place =
        Place { country: text(common.country), city: text(common.city), ..Place::default() };
    let name = common.name.and_then(Loose::text);
    let parts = || -> Result<_, String> {
        if fault {
            return Err("is no object".to_owned());
        }
        let wrong = |key: &str| format!("{key} is not a text");
        let text = |key: &str, loose: Option<Loose>| {
            loose.map(|loose| loose.text().ok_or_else(|| wrong(key))).transpose()
        };
        let texts = |key: &str, loose: Option<Loose>| {
            let texts = loose.map(|loose| loose.texts().ok_or_else(|| wrong(key))).transpose();
            texts.map(Option::unwrap_or_default)
        };
        if name.is_none() {
            return Err("has no name".to_owned());
        }
        if let Some(config) = text("config", common.config)? {
            return wg_quick_text(config.as_bytes());
        }
        let parts = Parts {
            endpoint: text("endpoint", common.endpoint)?,
            public_key: text("public_key", common.public_key)?,
            preshared_key: text("preshared_key", common.preshared_key)?,
            allowed_ips: texts("allowed_ips", common.allowed_ips)?,
            private_key: text("private_key", common.private_key)?,
            addresses: texts("address", common.address)?,
            mtu: text("mtu", common.mtu)?,
        };
        parts.config(own)
    };
    let config = parts();
    let name = name.unwrap_or_else(|| format!("entry {number}"));
    Offer { name, place, origin: None, config }
}
