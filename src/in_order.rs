//! JSON objects whose keys keep the order in which they are written.
//!
//! A chain prefers the node that is written first, so the order of a policy is a part of what it says.
//!
//! **Invariant:** what stands first is first, and nothing stands twice.

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// An object, its entries in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<K, V>(pub Vec<(K, V)>);

/// Any JSON, its objects in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Json {
    /// An object.
    Object(Object<String, Self>),
    /// A list.
    List(Vec<Self>),
    /// What holds nothing else.
    Plain(Value),
}

/// As it stands in a file, in one line.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl<K: Serialize, V: Serialize> Serialize for Object<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, K, V> Deserialize<'de> for Object<K, V>
where
    K: Deserialize<'de> + PartialEq + fmt::Display,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(InOrder(PhantomData))
    }
}

struct InOrder<K, V>(PhantomData<(K, V)>);

impl<'de, K, V> Visitor<'de> for InOrder<K, V>
where
    K: Deserialize<'de> + PartialEq + fmt::Display,
    V: Deserialize<'de>,
{
    type Value = Object<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(K, V)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<K, V>()? {
            if entries.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(format!("{key} stands twice: remove one")));
            }
            entries.push((key, value));
        }
        Ok(Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_stood() {
        let text = r#"{"b":[{"z":1.5,"a":null},"x"],"a":{"d":true,"c":{}}}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(json.to_string(), text);
        let twice = serde_json::from_str::<Object<String, u8>>(r#"{"a":1,"a":2}"#).unwrap_err();
        assert!(twice.to_string().contains("a stands twice"), "{twice}");
    }
}
