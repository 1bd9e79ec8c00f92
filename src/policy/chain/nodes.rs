//! An object whose keys keep their order.
//!
//! **Invariant:** what stands first is first, and nothing stands twice.

use crate::chain::name::NodeName;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// Nodes in the order in which they are written.
pub(super) struct Ordered<T>(pub(super) Vec<(NodeName, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(InOrder(PhantomData))
    }
}

struct InOrder<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
    type Value = Ordered<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of nodes, by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut nodes: Vec<(NodeName, T)> = Vec::new();
        while let Some((name, node)) = map.next_entry::<NodeName, T>()? {
            if nodes.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("node {name} stands twice: remove one")));
            }
            nodes.push((name, node));
        }
        Ok(Ordered(nodes))
    }
}
