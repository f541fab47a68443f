//! JSON pointers (RFC 6901) into a text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Returns the value at a pointer as it is written in the text. Parses the text once and without
/// copying it.
///
/// # Errors
/// A message for the model: the text is not JSON, or there is no value at the pointer.
pub(super) fn value_at<'a>(text: &'a str, pointer: &str) -> Result<&'a str, String> {
    let mut path = Vec::new();
    match pointer.strip_prefix('/') {
        Some(rest) => {
            path.extend(rest.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")));
        }
        None if pointer.is_empty() => {}
        None => {
            return Err("invalid JSON pointer: it must be empty or begin with a slash".to_owned());
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = ValueAt { path: &path }.deserialize(&mut reader);
    let found = found.map_err(|_| "the output is not JSON; use another mode".to_owned())?;
    found.map(RawValue::get).ok_or_else(|| {
        format!("no value at {pointer:?}; check the outline, or try a shorter pointer")
    })
}

/// Deserializer of the value at a path.
struct ValueAt<'p> {
    path: &'p [String],
}

impl<'de> DeserializeSeed<'de> for ValueAt<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.path {
            [] => serde::Deserialize::deserialize(deserializer).map(Some),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ValueAt<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            match self.path {
                [next, rest @ ..] if *next == key => {
                    found = map.next_value_seed(ValueAt { path: rest })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let wanted = self.path.first().and_then(|next| next.parse::<usize>().ok());
        let (mut index, mut found) = (0, None);
        loop {
            if Some(index) == wanted {
                match seq.next_element_seed(ValueAt { path: &self.path[1..] })? {
                    Some(value) => found = value,
                    None => return Ok(None),
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            index += 1;
        }
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_returns_raw_value() {
        let text = r#"{"a": [1, {"b/c": "x", "~": [ ]}], "": null, "n": 7}"#;
        for (pointer, expected) in [
            ("/a/0", "1"),
            ("/a/1/b~1c", r#""x""#),
            ("/a/1/~0", "[ ]"),
            ("/", "null"),
            ("/n", "7"),
            ("", text),
        ] {
            assert_eq!(value_at(text, pointer), Ok(expected), "{pointer}");
        }
        for pointer in ["/b", "/a/2", "/a/x", "/n/0", "/a/1/b", "a"] {
            assert!(value_at(text, pointer).is_err(), "{pointer}");
        }
        assert!(value_at("[1, 2", "/0").unwrap_err().contains("not JSON"));
    }
}
