//! Memory that JSON needs: of a text before it is parsed, and of a value before it is copied.

use rockbot_contracts::json;
use serde_json::Value;

/// Memory of a value without its content, in bytes.
const VALUE_BYTES: usize = 32;
/// Memory of an object with up to 11 members, in bytes: a node of the tree that holds them.
const OBJECT_BYTES: usize = 640;
/// Memory of an array with its first items, in bytes.
const ARRAY_BYTES: usize = 4 * VALUE_BYTES;
/// Memory of a member of an object, in bytes: its name and its place in the tree.
const MEMBER_BYTES: usize = 96;

/// A limit that a text exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShapeError {
    TooDeep,
    TooManyValues,
}

/// Checks nesting, number of values and memory of a JSON text. The text need not be valid: what the parser
/// reads of it has at most the counted values.
///
/// # Errors
/// When it exceeds a limit.
pub(super) fn check(text: &str, max_values: usize, max_memory: usize) -> Result<(), ShapeError> {
    let (mut values, mut memory, mut depth) = (1_usize, text.len(), 0_usize);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' | b'[' => {
                depth += 1;
                if depth > json::MAX_DEPTH {
                    return Err(ShapeError::TooDeep);
                }
                values += 1;
                memory += if byte == b'{' { OBJECT_BYTES } else { ARRAY_BYTES };
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => {
                values += 1;
                memory += VALUE_BYTES;
            }
            b':' => memory += MEMBER_BYTES,
            _ => {}
        }
        if values > max_values || memory > max_memory {
            return Err(ShapeError::TooManyValues);
        }
    }
    Ok(())
}

/// Subtracts the memory of a copy of a value, and returns whether it did not exceed the rest. Stops
/// where it does.
pub(super) fn copy_fits(value: &Value, rest: &mut usize) -> bool {
    let content = match value {
        Value::String(text) => text.len(),
        Value::Object(map) if !map.is_empty() => {
            OBJECT_BYTES + map.keys().map(|name| name.len() + MEMBER_BYTES).sum::<usize>()
        }
        Value::Array(list) if !list.is_empty() => ARRAY_BYTES,
        _ => 0,
    };
    let Some(left) = rest.checked_sub(VALUE_BYTES + content) else { return false };
    *rest = left;
    match value {
        Value::Array(list) => list.iter().all(|inner| copy_fits(inner, rest)),
        Value::Object(map) => map.values().all(|inner| copy_fits(inner, rest)),
        _ => true,
    }
}

/// Skips the rest of a string.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: usize = 1024 * 1024;

    #[test]
    fn values_are_counted_outside_of_strings() {
        let text = r#"{"a{[,": ["x\",,,\\", 1, {"b": {}}], "c": "[[[["}"#;
        assert!(check(text, 8, MEMORY).is_ok());
        assert_eq!(check(text, 7, MEMORY), Err(ShapeError::TooManyValues));
        assert!(check("\"[[[", 1, MEMORY).is_ok());
    }

    #[test]
    fn memory_of_many_small_objects_is_limited() {
        let objects = format!("[{}{{}}]", "{\"a\":0},".repeat(2_000));
        assert_eq!(check(&objects, 1_000_000, MEMORY), Err(ShapeError::TooManyValues));
        let numbers = format!("[{}0]", "0,".repeat(20_000));
        assert!(check(&numbers, 1_000_000, MEMORY).is_ok());
    }

    #[test]
    fn copies_of_empty_values_count() {
        let empty = Value::Array(vec![Value::Object(serde_json::Map::new()); 1_000]);
        let mut rest = 1_000 * VALUE_BYTES;
        assert!(!copy_fits(&empty, &mut rest));
        let mut rest = 2_000 * VALUE_BYTES;
        assert!(copy_fits(&empty, &mut rest) && rest < 1_000 * VALUE_BYTES);
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(check(&nested(json::MAX_DEPTH), 1_000, MEMORY).is_ok());
        assert_eq!(check(&nested(json::MAX_DEPTH + 1), 1_000, MEMORY), Err(ShapeError::TooDeep));
    }
}
