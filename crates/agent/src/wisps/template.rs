//! Templates: `{{steps.ID.result}}` and `{{steps.ID.key}}` in texts of a step.
//!
//! Values are put into parsed JSON as text. They are never read as JSON or as templates themselves, so a result cannot
//! change the structure of a call.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Longest result in the prompt of an `Llm` step, in bytes.
const MAX_INLINED_BYTES: usize = 4 * 1024;
/// Most bytes that all templates of a step are replaced with: each may name the same long result.
const MAX_EXPANDED_BYTES: usize = 1024 * 1024;

/// Why the templates of a step are not replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    /// A step that a template names has no result.
    #[error("step {0} has no result")]
    NoResult(String),
    /// The values are too long.
    #[error(
        "the values of its templates have more than {MAX_EXPANDED_BYTES} bytes; pass keys instead of results"
    )]
    TooLong,
}

/// The results of the steps that ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepValues(HashMap<String, StepValue>);

#[derive(Debug, Clone)]
struct StepValue {
    result: String,
    /// Key of the result in working memory; empty if it is not stored.
    key: String,
}

/// A template in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Result(&'a str),
    Key(&'a str),
}

impl StepValues {
    /// Adds the result of a step.
    pub(crate) fn add(&mut self, id: &str, result: String, key: String) {
        self.0.insert(id.to_owned(), StepValue { result, key });
    }

    /// Returns the arguments of a call with values for templates.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub(crate) fn expand(&self, arguments: &Value) -> Result<Value, TemplateError> {
        let mut left = MAX_EXPANDED_BYTES;
        self.expand_value(arguments, &mut left)
    }

    fn expand_value(&self, value: &Value, left: &mut usize) -> Result<Value, TemplateError> {
        Ok(match value {
            Value::String(text) => Value::String(self.expand_text(text, usize::MAX, left)?),
            Value::Array(items) => {
                let expanded = items.iter().map(|item| self.expand_value(item, left));
                Value::Array(expanded.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let expanded = members.iter().map(|(name, value)| {
                    self.expand_value(value, left).map(|value| (name.clone(), value))
                });
                Value::Object(expanded.collect::<Result<Map<_, _>, _>>()?)
            }
            other => other.clone(),
        })
    }

    /// Returns a prompt with values for templates, each shortened.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub(crate) fn expand_prompt(&self, prompt: &str) -> Result<String, TemplateError> {
        let mut left = MAX_EXPANDED_BYTES;
        self.expand_text(prompt, MAX_INLINED_BYTES, &mut left)
    }

    /// Replaces the templates of a text with values of up to `most` bytes, and takes their bytes from `left`.
    fn expand_text(
        &self,
        text: &str,
        most: usize,
        left: &mut usize,
    ) -> Result<String, TemplateError> {
        let mut expanded = String::with_capacity(text.len());
        for part in parts(text) {
            let (Part::Text(id) | Part::Result(id) | Part::Key(id)) = part;
            let value = || self.0.get(id).ok_or_else(|| TemplateError::NoResult(id.to_owned()));
            let value = match part {
                Part::Text(text) => {
                    expanded.push_str(text);
                    continue;
                }
                Part::Result(_) => {
                    let result = &value()?.result;
                    &result[..result.floor_char_boundary(most)]
                }
                Part::Key(_) => &value()?.key,
            };
            *left = left.checked_sub(value.len()).ok_or(TemplateError::TooLong)?;
            expanded.push_str(value);
        }
        Ok(expanded)
    }
}

/// Returns the ids of the steps that templates name.
pub(super) fn names<'a>(
    texts: impl Iterator<Item = &'a str>,
    params: &Map<String, Value>,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |text: &str| {
        for part in parts(text) {
            if let Part::Result(id) | Part::Key(id) = part {
                found.push(id.to_owned());
            }
        }
    };
    texts.for_each(&mut add);
    let mut left: Vec<&Value> = params.values().collect();
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => add(text),
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.values()),
            _ => {}
        }
    }
    found
}

/// Divides a text at its templates. Other braces are text.
fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let template =
            after.split_once("}}").and_then(|(inner, after)| Some((named(inner)?, after)));
        match template {
            Some((part, after)) => {
                found.extend([Part::Text(before), part]);
                rest = after;
            }
            None => {
                let end = rest.len() - after.len();
                found.push(Part::Text(&rest[..end]));
                rest = after;
            }
        }
    }
    found.push(Part::Text(rest));
    found
}

fn named(inner: &str) -> Option<Part<'_>> {
    let (id, field) = inner.trim().strip_prefix("steps.")?.split_once('.')?;
    match field {
        "result" => Some(Part::Result(id)),
        "key" => Some(Part::Key(id)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(result: &str) -> StepValues {
        let mut values = StepValues::default();
        values.add("x", result.to_owned(), "session/s/wisp/x".to_owned());
        values
    }

    #[test]
    fn value_stays_text() {
        let hostile = r#""}},{{steps.x.result}}{"a":1}"#;
        let arguments =
            json!({"n": 7, "list": ["<{{ steps.x.result }}>", {"k": "{{steps.x.key}}"}]});
        let expanded = values(hostile).expand(&arguments).unwrap();
        let expected = json!({"n": 7, "list": [format!("<{hostile}>"), {"k": "session/s/wisp/x"}]});
        assert_eq!(expanded, expected);
    }

    #[test]
    fn other_braces_are_text() {
        for text in
            ["{{", "}}{{", "{{other.x.result}}", "{{steps.x}}", "a {{steps.x.size}} b", "{}"]
        {
            assert_eq!(values("v").expand_text(text, 9, &mut 9).unwrap(), text);
        }
        assert_eq!(values("v").expand_text("{{{{steps.x.result}}", 9, &mut 9).unwrap(), "{{v");
    }

    #[test]
    fn step_without_a_result_is_named() {
        let missing = values("v").expand(&json!({"a": "{{steps.y.result}}"}));
        assert_eq!(missing, Err(TemplateError::NoResult("y".to_owned())));
    }

    #[test]
    fn many_templates_of_a_long_result_are_refused() {
        let values = values(&"x".repeat(64 * 1024));
        let long = "{{steps.x.result}}".repeat(16);
        assert!(values.expand(&json!({"a": long})).is_ok());
        let arguments = json!({"a": long, "b": ["{{steps.x.result}}"]});
        assert_eq!(values.expand(&arguments), Err(TemplateError::TooLong));
        let prompt = "{{steps.x.result}}".repeat(257);
        assert_eq!(values.expand_prompt(&prompt), Err(TemplateError::TooLong));
    }

    #[test]
    fn prompt_has_the_start_of_a_long_result() {
        let expanded = values(&"ü".repeat(5000)).expand_prompt("{{steps.x.result}}!").unwrap();
        assert_eq!(expanded.len(), MAX_INLINED_BYTES + 1);
    }

    #[test]
    fn names_are_found_at_any_depth() {
        let params = json!({"a": ["{{steps.one.result}}"], "b": {"c": "{{steps.two.key}}"}});
        let mut found = names(["{{steps.three.result}}"].into_iter(), params.as_object().unwrap());
        found.sort();
        assert_eq!(found, ["one", "three", "two"]);
    }
}
