//! Values of other types than the servers file has, where their meaning is clear: `"args": [8080]`.

use serde_json::{Map, Value};

/// Keys whose values are lists of texts, maps of texts, truth values, and numbers.
const LISTS: [&str; 1] = ["args"];
const MAPS: [&str; 2] = ["env", "headers"];
const FLAGS: [&str; 3] = ["disabled", "enabled", "required"];
const NUMBERS: [&str; 1] = ["requestTimeoutMs"];

/// Converts numbers and truth values to texts where texts are expected, and texts to numbers and truth
/// values where those are. `null` is an absent key.
pub(super) fn convert(entry: &mut Map<String, Value>) {
    entry.retain(|_, value| !value.is_null());
    for key in LISTS {
        if let Some(Value::Array(values)) = entry.get_mut(key) {
            values.iter_mut().for_each(to_text);
        }
    }
    for key in MAPS {
        if let Some(Value::Object(values)) = entry.get_mut(key) {
            values.retain(|_, value| !value.is_null());
            values.values_mut().for_each(to_text);
        }
    }
    for key in FLAGS {
        if let Some(value) = entry.get_mut(key)
            && let Some(flag) = value.as_str().and_then(|text| text.parse::<bool>().ok())
        {
            *value = flag.into();
        }
    }
    for key in NUMBERS {
        if let Some(value) = entry.get_mut(key)
            && let Some(number) = value.as_str().and_then(|text| text.parse::<u64>().ok())
        {
            *value = number.into();
        }
    }
}

fn to_text(value: &mut Value) {
    if value.is_number() || value.is_boolean() {
        *value = Value::String(value.to_string());
    }
}
