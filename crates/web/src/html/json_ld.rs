//! Structured data of a page in JSON-LD.

use dom_query::Document;
use serde_json::Value;

/// Bounds of what is read: scripts of a page, bytes of a script, and values of a script.
const MAX_SCRIPTS: usize = 32;
const MAX_SCRIPT_BYTES: usize = 512 * 1024;
const MAX_VALUES: usize = 20_000;

/// Facts in a page's structured data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StructuredData {
    /// The page declares itself as an article or a posting.
    pub(super) is_article: bool,
    /// Text of the article, or else the longest description.
    pub(super) text: Option<String>,
}

impl StructuredData {
    /// Reads a page. Invalid data is skipped.
    pub(super) fn read(document: &Document) -> Self {
        let mut data = Self::default();
        let mut description = None;
        for script in document.select("script").nodes().iter().filter(is_json_ld).take(MAX_SCRIPTS)
        {
            let text = script.text();
            if text.len() > MAX_SCRIPT_BYTES {
                continue;
            }
            if let Ok(value) = serde_json::from_str::<Value>(text.trim()) {
                data.visit(value, &mut description);
            }
        }
        data.is_article |= document
            .select("meta")
            .nodes()
            .iter()
            .any(|meta| is(meta, "property", "og:type") && is(meta, "content", "article"));
        data.text = data.text.or(description);
        data
    }

    fn visit(&mut self, value: Value, description: &mut Option<String>) {
        let mut open = vec![value];
        for _ in 0..MAX_VALUES {
            match open.pop() {
                Some(Value::Array(values)) => open.extend(values),
                Some(Value::Object(mut object)) => {
                    self.is_article |= object.get("@type").is_some_and(is_article_type);
                    keep_longer(&mut self.text, object.remove("articleBody"));
                    keep_longer(description, object.remove("description"));
                    open.extend(object.into_iter().map(|(_, value)| value));
                }
                Some(_) => {}
                None => return,
            }
        }
    }
}

fn is_json_ld(script: &&dom_query::NodeRef<'_>) -> bool {
    is(script, "type", "application/ld+json")
}

fn is(node: &dom_query::NodeRef<'_>, attribute: &str, expected: &str) -> bool {
    node.attr(attribute).is_some_and(|value| value.trim().eq_ignore_ascii_case(expected))
}

fn is_article_type(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => kind.ends_with("Article") || kind.ends_with("Posting"),
        Value::Array(kinds) => kinds.iter().any(|kind| {
            kind.as_str().is_some_and(|kind| kind.ends_with("Article") || kind.ends_with("Posting"))
        }),
        _ => false,
    }
}

fn keep_longer(kept: &mut Option<String>, value: Option<Value>) {
    if let Some(Value::String(text)) = value
        && kept.as_ref().is_none_or(|kept| kept.len() < text.len())
    {
        *kept = Some(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::parse::parse;

    fn read(html: &str) -> StructuredData {
        StructuredData::read(&parse(html).unwrap())
    }

    #[test]
    fn article_body_is_found_in_graph() {
        let data = read(
            r#"<script type="application/ld+json">{"@graph": [{"@type": "WebPage", "description":
            "a longer description than the text"}, {"@type": ["NewsArticle"], "articleBody": "The text"}]}
            </script>"#,
        );
        assert_eq!(data, StructuredData { is_article: true, text: Some("The text".to_owned()) });
    }

    #[test]
    fn description_replaces_missing_body() {
        let data = read(
            r#"<script type="application/ld+json">{"@type": "Product", "description": "A lamp"}</script>
            <script type="application/ld+json">{broken</script>"#,
        );
        assert_eq!(data, StructuredData { is_article: false, text: Some("A lamp".to_owned()) });
    }

    #[test]
    fn article_is_declared_by_open_graph() {
        assert!(read("<meta property=og:type content=article>").is_article);
        assert!(!read("<meta property=og:type content=website>").is_article);
    }
}
