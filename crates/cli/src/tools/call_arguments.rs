//! Arguments of a call as `KEY=VALUE`, read by the tool's schema.

use rockbot_contracts::ToolRegistration;
use serde_json::{Map, Value};

use crate::{failure::Failure, similar_names};

/// Arguments from the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenArguments {
    /// A JSON object, as text.
    Json(String),
    /// Keys with their values, in the order of the command line.
    Pairs(Vec<(String, String)>),
}

impl GivenArguments {
    /// Parses the arguments of a command line. `read` reads one JSON object, `@FILE` or `-`.
    ///
    /// # Errors
    /// When they are neither one JSON object nor pairs.
    pub(crate) fn parse(
        given: &[String],
        read: impl FnOnce(Option<&str>) -> Result<String, Failure>,
    ) -> Result<Self, Failure> {
        match given {
            [] => return read(None).map(Self::Json),
            [one] if one == "-" || one.starts_with(['{', '[', '@']) => {
                return read(Some(one)).map(Self::Json);
            }
            // A single word without `=` gets the error of the JSON parser, which shows an object.
            [one] if !one.contains('=') => return read(Some(one)).map(Self::Json),
            _ => {}
        }
        let pairs = given.iter().map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Failure::usage(format!(
                "{pair:?} is no KEY=VALUE; expected for example path=README.md, or one JSON object"
            ))),
        });
        pairs.collect::<Result<_, _>>().map(Self::Pairs)
    }

    /// Returns the arguments of a call of `tool` as JSON.
    ///
    /// # Errors
    /// When a key is not one of the tool, a value has the wrong type, or a required key is missing.
    pub(crate) fn for_tool(self, tool: &ToolRegistration) -> Result<String, Failure> {
        match self {
            Self::Json(text) => Ok(text),
            Self::Pairs(pairs) => {
                let schema = Schema(&tool.parameters);
                let object = schema.object(&tool.name, pairs).map_err(Failure::usage)?;
                Ok(Value::Object(object).to_string())
            }
        }
    }
}

/// The JSON Schema of an object.
struct Schema<'a>(&'a Value);

impl Schema<'_> {
    fn object(
        &self,
        tool: &str,
        pairs: Vec<(String, String)>,
    ) -> Result<Map<String, Value>, String> {
        let mut object = Map::new();
        for (key, text) in pairs {
            let Some(property) = self.property(&key) else {
                return Err(self.unknown(tool, &key));
            };
            let kind = kind(property);
            // A list of one JSON value is the whole list; otherwise each pair is one item.
            if kind == Some("array") && !text.trim_start().starts_with('[') {
                let item = property.get("items").unwrap_or(&Value::Null);
                let value = value(&key, &text, item)?;
                match object.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
                    Value::Array(items) => items.push(value),
                    _ => return Err("a list is given both as JSON and item by item".to_owned()),
                }
                continue;
            }
            let value = value(&key, &text, property)?;
            if object.insert(key.clone(), value).is_some() {
                return Err(format!("{key} is given twice, and is no list"));
            }
        }
        let required = self.0.get("required").and_then(Value::as_array).into_iter().flatten();
        let missing = required.filter_map(Value::as_str).find(|key| !object.contains_key(*key));
        match missing {
            Some(key) => Err(format!(
                "{key} is missing; add {key}=VALUE; `rockbot tools describe {tool}` shows the arguments"
            )),
            None => Ok(object),
        }
    }

    /// Returns the schema of a key; `null` for a key that the schema permits without describing it.
    fn property(&self, key: &str) -> Option<&Value> {
        static ANY: Value = Value::Null;
        let described = self.0.get("properties").and_then(|properties| properties.get(key));
        let is_open = self.0.get("additionalProperties") != Some(&Value::Bool(false));
        let has_patterns = self.0.get("patternProperties").is_some();
        let is_described = self.0.get("properties").is_some_and(Value::is_object);
        described.or((has_patterns || (is_open && !is_described)).then_some(&ANY))
    }

    fn unknown(&self, tool: &str, key: &str) -> String {
        let known = self.0.get("properties").and_then(Value::as_object);
        let keys = || known.into_iter().flat_map(Map::keys);
        let advice = match similar_names::closest(key, keys()) {
            Some(similar) => format!("did you mean {similar}?"),
            None => {
                let keys: Vec<_> = keys().map(String::as_str).collect();
                format!("its arguments are: {}", keys.join(", "))
            }
        };
        format!("{tool} has no argument {key:?}; {advice}")
    }
}

/// Returns the type of a value, if the schema permits one type, or one and `null`.
fn kind(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            kinds.next().filter(|_| kinds.next().is_none())
        }
        _ => None,
    }
}

/// Reads a value by its schema.
fn value(key: &str, text: &str, schema: &Value) -> Result<Value, String> {
    let parsed = || serde_json::from_str::<Value>(text).ok();
    let (value, expected) = match kind(schema) {
        Some("string") => return Ok(Value::String(text.to_owned())),
        Some("integer") => {
            (parsed().filter(|value| value.is_i64() || value.is_u64()), "a whole number")
        }
        Some("number") => (parsed().filter(Value::is_number), "a number"),
        Some("boolean") => (parsed().filter(Value::is_boolean), "true or false"),
        Some("array") => (parsed().filter(Value::is_array), "a JSON array"),
        Some("object") => (parsed().filter(Value::is_object), "a JSON object"),
        // A text need not be quoted.
        _ => return Ok(parsed().unwrap_or_else(|| Value::String(text.to_owned()))),
    };
    value.ok_or_else(|| format!("{key}: expected {expected}, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{ToolHints, ToolSource};
    use serde_json::json;

    use super::*;

    fn tool() -> ToolRegistration {
        ToolRegistration {
            name: "search".to_owned(),
            label: None,
            description: String::new(),
            tool_description: None,
            parameters: json!({
                "type": "object",
                "properties": {
                    "query": {"type": "string"}, "limit": {"type": ["integer", "null"]},
                    "exact": {"type": "boolean"}, "weight": {"type": "number"},
                    "paths": {"type": "array", "items": {"type": "string"}},
                    "options": {"type": "object"}, "any": {},
                },
                "required": ["query"],
                "additionalProperties": false,
            }),
            source: ToolSource::Files,
            hints: ToolHints::default(),
            timeout_ms: None,
        }
    }

    fn read(words: &[&str]) -> Result<Value, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let given = GivenArguments::parse(&words, |given| Ok(given.unwrap_or("{}").to_owned()));
        let text = given.and_then(|given| given.for_tool(&tool()));
        text.map(|text| serde_json::from_str(&text).unwrap())
            .map_err(|failure| format!("{:#}", failure.cause))
    }

    #[test]
    fn values_are_read_by_the_schema() {
        let words = [
            "query=1=2",
            "limit=3",
            "exact=true",
            "weight=0.5",
            "paths=a",
            "paths=b c",
            "any=[1]",
            "options={\"a\":1}",
        ];
        let expected = json!({
            "query": "1=2", "limit": 3, "exact": true, "weight": 0.5, "paths": ["a", "b c"],
            "any": [1], "options": {"a": 1},
        });
        assert_eq!(read(&words).unwrap(), expected);
        assert_eq!(read(&["query=x", "paths=[\"a\"]"]).unwrap()["paths"], json!(["a"]));
        assert_eq!(read(&["{\"query\":\"x\"}"]).unwrap(), json!({"query": "x"}));
    }

    #[test]
    fn problem_names_the_argument() {
        for (words, part) in [
            (&["limit=3"][..], "query is missing; add query=VALUE"),
            (&["query=x", "limit=many"], "limit: expected a whole number, got \"many\""),
            (&["query=x", "exact=yes"], "exact: expected true or false"),
            (&["query=x", "qurey=y"], "did you mean query?"),
            (&["query=x", "zzz=1"], "its arguments are: "),
            (&["query=x", "query=y"], "query is given twice"),
            (&["query=x", "limit"], "is no KEY=VALUE"),
            (&["query=x", "paths=[\"a\"]", "paths=b", "paths=[]"], "given twice"),
        ] {
            let problem = read(words).unwrap_err();
            assert!(problem.contains(part), "{words:?}: {problem}");
        }
    }
}
