//! Lists and maps of a bounded number of elements.
//!
//! A body of a megabyte can hold hundreds of thousands of empty objects, which need much more memory as
//! values. Elements over the limit are read and dropped.

use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// The first `MAX` elements of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundedList<T, const MAX: usize>(Vec<T>);

/// The first `MAX` entries of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundedMap<T, const MAX: usize>(BTreeMap<String, T>);

impl<T, const MAX: usize> Default for BoundedList<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> Default for BoundedMap<T, MAX> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T, const MAX: usize> Deref for BoundedList<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MAX: usize> Deref for BoundedMap<T, MAX> {
    type Target = BTreeMap<String, T>;

    fn deref(&self) -> &BTreeMap<String, T> {
        &self.0
    }
}

impl<T, const MAX: usize> From<BoundedList<T, MAX>> for Vec<T> {
    fn from(list: BoundedList<T, MAX>) -> Self {
        list.0
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements::<T, MAX>(PhantomData)).map(Self)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedMap<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries::<T, MAX>(PhantomData)).map(Self)
    }
}

struct Elements<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < MAX {
            let Some(element) = access.next_element()? else { return Ok(elements) };
            elements.push(element);
        }
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(elements)
    }
}

struct Entries<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Entries<T, MAX> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while entries.len() < MAX {
            let Some((key, value)) = access.next_entry()? else { return Ok(entries) };
            entries.insert(key, value);
        }
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_elements_are_dropped() {
        let list: BoundedList<u8, 2> =
            serde_json::from_str("[1, 2, {\"x\": []}, 4]").expect("a list");
        assert_eq!(&*list, [1, 2]);
        let list: BoundedList<u8, 2> = serde_json::from_str("[1]").expect("a list");
        assert_eq!(&*list, [1]);
        let text = r#"{"a": 1, "b": 2, "c": [], "d": null}"#;
        let map: BoundedMap<u8, 2> = serde_json::from_str(text).expect("a map");
        assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn invalid_elements_and_ends_are_errors() {
        for text in ["[1, \"x\"]", "[1, 2, 3", "{}", "[1,2,3,]"] {
            assert!(serde_json::from_str::<BoundedList<u8, 2>>(text).is_err(), "{text}");
        }
        for text in ["[]", "{\"a\": 1, \"b\": 2, \"c\": ", "{\"a\": \"x\"}"] {
            assert!(serde_json::from_str::<BoundedMap<u8, 2>>(text).is_err(), "{text}");
        }
    }
}
