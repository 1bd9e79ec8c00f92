//! One JSON object of a listing, taken apart field by field.
//!
//! **Invariant:** a field that nobody asked for is still there at the end, so that it can be noticed.

use super::Family;
use super::batch::ListingError;
use crate::names::Table;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Map, Value};
use std::net::IpAddr;

pub(super) struct Fields {
    kind: &'static str,
    left: Map<String, Value>,
}

/// The objects of a listing. `ip` prints `{}` for what it filtered out; those are skipped.
pub(super) fn objects(kind: &'static str, listing: &Value) -> Result<Vec<Fields>, ListingError> {
    let entries = listing
        .as_array()
        .ok_or_else(|| ListingError::new(format!("the {kind} listing is no array")))?;
    let mut objects = Vec::new();
    for entry in entries {
        match entry {
            Value::Object(left) if left.is_empty() => {}
            Value::Object(left) => objects.push(Fields { kind, left: left.clone() }),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                return Err(ListingError::new(format!(
                    "an entry of the {kind} listing is no object"
                )));
            }
        }
    }
    Ok(objects)
}

impl Fields {
    pub(super) fn wrong(&self, field: &str) -> ListingError {
        ListingError::new(format!("a {} has a {field} that is not understood", self.kind))
    }

    /// A field as it is.
    pub(super) fn value(&mut self, field: &str) -> Option<Value> {
        self.left.remove(field)
    }

    /// Takes a field away if it is this text.
    pub(super) fn value_is(&mut self, field: &str, text: &str) -> bool {
        let is = self.left.get(field).is_some_and(|value| value == text);
        if is {
            self.left.remove(field);
        }
        is
    }

    /// Whether a flag is set: by `null`, by `true`, or by any other value but `false`.
    pub(super) fn flag(&mut self, field: &str) -> bool {
        self.left.remove(field).is_some_and(|value| value != Value::Bool(false))
    }

    pub(super) fn text(&mut self, field: &str) -> Result<Option<String>, ListingError> {
        match self.left.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                Err(self.wrong(field))
            }
        }
    }

    /// A number, which `ip` prints bare, in quotes, or as `0x` and hex digits in quotes.
    pub(super) fn number<T: TryFrom<u32>>(
        &mut self,
        field: &str,
    ) -> Result<Option<T>, ListingError> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(field)),
        }
    }

    /// A routing table; the three fixed names are read too, in case `-N` was forgotten.
    pub(super) fn table(&mut self, field: &str) -> Result<Option<Table>, ListingError> {
        let fixed = match self.left.get(field).and_then(Value::as_str) {
            Some("main") => Some(Table::MAIN),
            Some("default") => Some(Table(253)),
            Some("local") => Some(Table(255)),
            Some(_) | None => None,
        };
        if fixed.is_some() {
            self.left.remove(field);
            return Ok(fixed);
        }
        Ok(self.number(field)?.map(Table))
    }

    pub(super) fn address(&mut self, field: &str) -> Result<Option<IpAddr>, ListingError> {
        match self.text(field)? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| self.wrong(field)),
        }
    }

    /// An address and its length in another field, as rules and links have them; a missing length is a
    /// whole address.
    pub(super) fn prefix(
        &mut self,
        field: &str,
        length: &str,
    ) -> Result<Option<IpNet>, ListingError> {
        let length = self.number::<u8>(length)?;
        let Some(address) = self.address(field)? else { return Ok(None) };
        match length {
            None => Ok(Some(IpNet::from(address))),
            Some(length) => IpNet::new(address, length).map(Some).map_err(|_| self.wrong(field)),
        }
    }

    /// Whether a field is left that is not in `known`.
    pub(super) fn has_more_than(&self, known: &[&str]) -> bool {
        self.left.keys().any(|field| !known.contains(&field.as_str()))
    }

    /// Whether a field stands there.
    pub(super) fn has(&self, field: &str) -> bool {
        self.left.contains_key(field)
    }
}

/// All addresses of a family.
pub(super) fn everything(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}

/// A prefix as `ip` takes it.
pub(super) fn argument(prefix: IpNet) -> String {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        prefix.addr().to_string()
    } else {
        prefix.to_string()
    }
}
