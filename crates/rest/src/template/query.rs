//! Query parameters with placeholders.

use serde_json::{Map, Value};
use url::Url;

use super::{
    environment::Environment,
    error::TemplateError,
    text::{Template, text_of},
    url::{MAX_URL_BYTES, too_long},
};
use crate::request::InvalidArguments;

/// Maximum depth of objects in a configured query.
const MAX_DEPTH: usize = 8;

/// Query keys with the templates of their values. A key may occur more than once.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryTemplate(Vec<(String, Template)>);

impl QueryTemplate {
    /// Creates the template from `query` of an entry. Objects become keys such as `filter[state]`, and
    /// arrays repeat their key.
    ///
    /// # Errors
    /// When a key has a placeholder, or the objects are nested too deeply.
    pub(super) fn new(
        query: &Map<String, Value>,
        environment: &mut Environment<'_>,
    ) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        for (name, value) in query {
            template.add(name.clone(), value, environment, 0)?;
        }
        Ok(template)
    }

    /// Puts the query of the URL before it.
    pub(super) fn after(self, mut query: Vec<(String, Template)>) -> Self {
        query.extend(self.0);
        Self(query)
    }

    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.0.iter().map(|(_, template)| template)
    }

    fn add(
        &mut self,
        name: String,
        value: &Value,
        environment: &mut Environment<'_>,
        depth: usize,
    ) -> Result<(), TemplateError> {
        if name.contains("${") {
            return Err(TemplateError::new("query: a key must not have a placeholder"));
        }
        if depth > MAX_DEPTH {
            return Err(TemplateError(format!("query: at most {MAX_DEPTH} levels are possible")));
        }
        match value {
            Value::Null => {}
            Value::String(text) => self.0.push((name, Template::parse(text, environment)?)),
            Value::Bool(_) | Value::Number(_) => {
                self.0.push((name, Template::literal(value.to_string())));
            }
            Value::Array(items) => {
                for item in items {
                    self.add(name.clone(), item, environment, depth + 1)?;
                }
            }
            Value::Object(members) => {
                for (member, value) in members {
                    self.add(format!("{name}[{member}]"), value, environment, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the query for a call to a URL. A key whose argument is absent or null is left out; an
    /// argument that is an array repeats its key, and one that is an object is sent as JSON.
    ///
    /// # Errors
    /// When the URL would become too long.
    pub(super) fn fill(
        &self,
        url: &mut Url,
        arguments: &Map<String, Value>,
    ) -> Result<(), InvalidArguments> {
        let mut pairs = Vec::new();
        for (name, template) in &self.0 {
            match template.value(arguments).as_deref() {
                None => {}
                Some(Value::Array(items)) => {
                    let items = items.iter().filter_map(text_of);
                    pairs.extend(items.map(|item| (name, item.into_owned())));
                }
                Some(value) => {
                    pairs.extend(text_of(value).map(|text| (name, text.into_owned())));
                }
            }
        }
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        if url.as_str().len() > MAX_URL_BYTES { Err(too_long()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(query: Value, arguments: Value) -> Result<String, String> {
        let (Value::Object(query), Value::Object(arguments)) = (query, arguments) else {
            unreachable!()
        };
        let lookup = |name: &str| (name == "KEY").then(|| "k&=".to_owned());
        let template = QueryTemplate::new(&query, &mut Environment::new(&lookup));
        let template = template.map_err(|error| error.to_string())?;
        let mut url: Url = "https://a/".parse().unwrap();
        template.fill(&mut url, &arguments).map_err(|error| error.to_string())?;
        Ok(url.query().unwrap_or_default().to_owned())
    }

    #[test]
    fn values_are_encoded_and_absent_keys_left_out() {
        let query = json!({
            "key": "${KEY}", "n": 7, "none": "${parameters.none}", "null": null,
            "part": "a ${parameters.q}", "q": "${parameters.q}",
        });
        let filled = fill(query, json!({"q": "x&y"})).unwrap();
        assert_eq!(filled, "key=k%26%3D&n=7&part=a+x%26y&q=x%26y");
        assert_eq!(fill(json!({}), json!({})).unwrap(), "");
    }

    #[test]
    fn objects_become_keys_and_arrays_repeat_them() {
        let query = json!({
            "filter": {"by": {"state": "${parameters.state}"}, "ids": [1, "${parameters.id}"]},
            "list": "${parameters.list}", "object": "${parameters.object}",
        });
        let arguments = json!({"state": "open", "list": ["a", 2], "object": {"x": 1}});
        assert_eq!(
            fill(query, arguments).unwrap(),
            "filter%5Bby%5D%5Bstate%5D=open&filter%5Bids%5D=1&list=a&list=2&object=%7B%22x%22%3A1%7D"
        );
    }

    #[test]
    fn keys_are_fixed_and_length_is_bounded() {
        assert!(fill(json!({"${parameters.x}": 1}), json!({})).is_err());
        assert!(fill(json!({"a": {"${KEY}": 1}}), json!({})).is_err());
        let mut deep = json!(1);
        for _ in 0..10 {
            deep = json!({"a": deep});
        }
        assert!(fill(json!({"a": deep}), json!({})).is_err());
        assert!(fill(json!({"q": "${parameters.q}"}), json!({"q": "x".repeat(20_000)})).is_err());
    }
}
