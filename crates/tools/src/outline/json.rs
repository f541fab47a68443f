//! The keys of a JSON text and what is below them, read in one pass that keeps only what is shown.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::cut;

/// Levels of keys that are shown.
const DEPTH: usize = 4;
/// Keys of one object that are shown.
const KEYS: usize = 40;
/// The longest key that is shown, in bytes.
const KEY_BYTES: usize = 80;

/// The sketch of a JSON object or array in at most `max_bytes`; none when the text is not one.
pub(super) fn sketch(text: &str, max_bytes: usize) -> Option<String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut sketch = Sketch { text: "JSON: ".to_owned(), max_bytes };
    let mut reader = serde_json::Deserializer::from_str(text);
    Below { sketch: &mut sketch, depth: 0 }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(cut(&sketch.text, max_bytes))
}

struct Sketch {
    text: String,
    max_bytes: usize,
}

impl Sketch {
    fn is_full(&self) -> bool {
        self.text.len() >= self.max_bytes
    }

    fn line(&mut self, depth: usize, words: &str) {
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str("- ");
        self.text.push_str(words);
    }
}

/// Sketches the value that comes.
struct Below<'a> {
    sketch: &'a mut Sketch,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Below<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Below<'_> {
    fn is(&mut self, what: &str) {
        self.sketch.text.push_str(what);
    }

    /// What is known only at the end goes where the value began.
    fn is_at(&mut self, place: usize, what: &str) {
        self.sketch.text.insert_str(place, what);
    }
}

impl<'de> Visitor<'de> for Below<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let place = self.sketch.text.len();
        let (mut keys, depth) = (0_usize, self.depth + 1);
        while let Some(key) = map.next_key::<String>()? {
            keys += 1;
            if keys > KEYS || depth > DEPTH || self.sketch.is_full() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.sketch.line(depth - 1, &format!("{:?}: ", cut(&key, KEY_BYTES)));
            map.next_value_seed(Below { sketch: &mut *self.sketch, depth })?;
        }
        self.is_at(place, &format!("object, {keys} keys"));
        if keys > KEYS && depth <= DEPTH {
            self.sketch.line(depth - 1, &format!("… {} more keys", keys - KEYS));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let place = self.sketch.text.len();
        let (mut count, depth) = (0_usize, self.depth + 1);
        if depth <= DEPTH && !self.sketch.is_full() {
            self.sketch.line(depth - 1, "the first: ");
            match seq.next_element_seed(Below { sketch: &mut *self.sketch, depth })? {
                Some(()) => count = 1,
                None => self.sketch.text.truncate(place),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        self.is_at(place, &format!("array, {count} items"));
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.is(&format!("string, {} chars", text.chars().count()));
        Ok(())
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        self.is("boolean");
        Ok(())
    }

    fn visit_i64<E>(mut self, number: i64) -> Result<(), E> {
        self.is(&number.to_string());
        Ok(())
    }

    fn visit_u64<E>(mut self, number: u64) -> Result<(), E> {
        self.is(&number.to_string());
        Ok(())
    }

    fn visit_f64<E>(mut self, number: f64) -> Result<(), E> {
        self.is(&number.to_string());
        Ok(())
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.is("null");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_with_what_is_below_them() {
        let text =
            r#"{"models": [{"id": "a", "price": 0.5}, {"id": "b"}], "none": [], "ok": true}"#;
        let expected = "JSON: object, 3 keys
- \"models\": array, 2 items
  - the first: object, 2 keys
    - \"id\": string, 1 chars
    - \"price\": 0.5
- \"none\": array, 0 items
- \"ok\": boolean";
        assert_eq!(sketch(text, 1000).unwrap(), expected);
    }

    #[test]
    fn wide_and_deep_values_are_counted_not_shown() {
        let wide: String = (0..1000).map(|key| format!("\"k{key}\":{{}},")).collect();
        let sketched = sketch(&format!("{{{}}}", wide.trim_end_matches(',')), 100_000).unwrap();
        assert!(sketched.starts_with("JSON: object, 1000 keys"), "{sketched}");
        assert!(sketched.ends_with("- … 960 more keys"), "{sketched}");
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(sketch(&deep, 1000).unwrap().lines().count(), 1 + DEPTH);
        // Deeper than is safe to follow: no JSON.
        assert_eq!(sketch(&"[".repeat(100_000), 1000), None);
    }
}
