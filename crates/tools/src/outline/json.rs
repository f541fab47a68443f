//! Outlines of JSON, computed in one pass with bounded memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::truncate;

/// Maximum nesting depth.
const DEPTH: usize = 4;
/// Maximum number of keys per object.
const KEYS: usize = 40;
/// Maximum length of a key, in bytes.
const KEY_BYTES: usize = 80;

/// Returns the outline of a JSON object or array in at most `max_bytes`, or `None` if the text is not
/// one.
pub(super) fn outline(text: &str, max_bytes: usize) -> Option<String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut outline = JsonOutline { text: "JSON: ".to_owned(), max_bytes };
    let mut reader = serde_json::Deserializer::from_str(text);
    OutlineValue { outline: &mut outline, depth: 0 }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(truncate(&outline.text, max_bytes))
}

struct JsonOutline {
    text: String,
    max_bytes: usize,
}

impl JsonOutline {
    fn is_full(&self) -> bool {
        self.text.len() >= self.max_bytes
    }

    fn line(&mut self, depth: usize, description: &str) {
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str("- ");
        self.text.push_str(description);
    }
}

/// Visitor that writes the outline of a value.
struct OutlineValue<'a> {
    outline: &'a mut JsonOutline,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for OutlineValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl OutlineValue<'_> {
    fn describe(&mut self, description: &str) {
        self.outline.text.push_str(description);
    }

    /// Inserts a description at the position where the value started. It is known only after the value has been
    /// read.
    fn describe_at(&mut self, position: usize, description: &str) {
        self.outline.text.insert_str(position, description);
    }
}

impl<'de> Visitor<'de> for OutlineValue<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let position = self.outline.text.len();
        let (mut keys, depth) = (0_usize, self.depth + 1);
        while let Some(key) = map.next_key::<String>()? {
            keys += 1;
            if keys > KEYS || depth > DEPTH || self.outline.is_full() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.outline.line(depth - 1, &format!("{:?}: ", truncate(&key, KEY_BYTES)));
            map.next_value_seed(OutlineValue { outline: &mut *self.outline, depth })?;
        }
        self.describe_at(position, &format!("object, {keys} keys"));
        if keys > KEYS && depth <= DEPTH {
            self.outline.line(depth - 1, &format!("… {} more keys", keys - KEYS));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let position = self.outline.text.len();
        let (mut count, depth) = (0_usize, self.depth + 1);
        if depth <= DEPTH && !self.outline.is_full() {
            self.outline.line(depth - 1, "first item: ");
            match seq.next_element_seed(OutlineValue { outline: &mut *self.outline, depth })? {
                Some(()) => count = 1,
                None => self.outline.text.truncate(position),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        self.describe_at(position, &format!("array, {count} items"));
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.describe(&format!("string, {} chars", text.chars().count()));
        Ok(())
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        self.describe("boolean");
        Ok(())
    }

    fn visit_i64<E>(mut self, number: i64) -> Result<(), E> {
        self.describe(&number.to_string());
        Ok(())
    }

    fn visit_u64<E>(mut self, number: u64) -> Result<(), E> {
        self.describe(&number.to_string());
        Ok(())
    }

    fn visit_f64<E>(mut self, number: f64) -> Result<(), E> {
        self.describe(&number.to_string());
        Ok(())
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.describe("null");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outline_shows_nested_keys() {
        let text =
            r#"{"models": [{"id": "a", "price": 0.5}, {"id": "b"}], "none": [], "ok": true}"#;
        let expected = "JSON: object, 3 keys
- \"models\": array, 2 items
  - first item: object, 2 keys
    - \"id\": string, 1 chars
    - \"price\": 0.5
- \"none\": array, 0 items
- \"ok\": boolean";
        assert_eq!(outline(text, 1000).unwrap(), expected);
    }

    #[test]
    fn wide_object_is_abbreviated_and_deep_value_cut_off() {
        let wide: String = (0..1000).map(|key| format!("\"k{key}\":{{}},")).collect();
        let outlined = outline(&format!("{{{}}}", wide.trim_end_matches(',')), 100_000).unwrap();
        assert!(outlined.starts_with("JSON: object, 1000 keys"), "{outlined}");
        assert!(outlined.ends_with("- … 960 more keys"), "{outlined}");
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(outline(&deep, 1000).unwrap().lines().count(), 1 + DEPTH);
        // The nesting is too deep for the parser.
        assert_eq!(outline(&"[".repeat(100_000), 1000), None);
    }
}
