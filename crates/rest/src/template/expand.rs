//! Variables in configured values without parameters.

use serde_json::Value;

use super::{environment::Environment, error::TemplateError, text::Template};

/// Expands the variables in all texts of a value. Names of objects are left as they are.
///
/// # Errors
/// When a text is not a valid template or has a parameter, which only calls have.
pub(crate) fn expand(
    value: Value,
    environment: &mut Environment<'_>,
) -> Result<Value, TemplateError> {
    match value {
        Value::String(text) => {
            let template = Template::parse(&text, environment)?;
            match template.into_text() {
                Some(text) => Ok(Value::String(text)),
                None => Err(TemplateError::new(
                    "an openApi entry has no parameters; write $${ for a literal ${",
                )),
            }
        }
        Value::Array(items) => {
            let items = items.into_iter().map(|item| expand(item, environment));
            items.collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(members) => {
            let members =
                members.into_iter().map(|(name, value)| Ok((name, expand(value, environment)?)));
            members.collect::<Result<_, _>>().map(Value::Object)
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_texts_of_a_value_are_expanded() {
        let lookup = |name: &str| (name == "KEY").then(|| "value".to_owned());
        let mut environment = Environment::new(&lookup);
        let value =
            json!({"${KEY}": ["${KEY}", 7, {"a": "x${KEY}", "b": "${NONE:-d}"}], "c": "$${"});
        let expanded = expand(value, &mut environment).unwrap();
        assert_eq!(expanded, json!({"${KEY}": ["value", 7, {"a": "xvalue", "b": "d"}], "c": "${"}));
        assert_eq!(environment.finish().unwrap(), ["value", "value"]);
    }

    #[test]
    fn unset_variables_are_reported_together() {
        let mut environment = Environment::new(&|_| None);
        expand(json!(["${B}", "${A}", "${B}"]), &mut environment).unwrap();
        let error = environment.finish().unwrap_err().to_string();
        assert!(error.contains("variables A, B are not set"), "{error}");
        let mut environment = Environment::new(&|_| None);
        assert!(expand(json!("${parameters.x}"), &mut environment).is_err());
    }
}
