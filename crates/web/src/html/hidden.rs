//! Removal of what people do not see: a page can address a model in it without their knowledge.

use dom_query::{Document, NodeRef};

use super::style;

/// Elements that show nothing, or nothing of their content.
const INVISIBLE: [&str; 16] = [
    "applet", "audio", "canvas", "datalist", "embed", "frame", "frameset", "iframe", "input",
    "noembed", "noframes", "noscript", "object", "script", "style", "template",
];

/// Removes comments and invisible elements. Style sheets are not evaluated.
pub(super) fn remove(document: &Document) {
    for node in document.root().descendants() {
        if node.is_comment() || node.is_element() && is_invisible(&node) {
            node.remove_from_parent();
        }
    }
}

fn is_invisible(node: &NodeRef<'_>) -> bool {
    let Some(name) = node.node_name() else { return false };
    let attribute = |name: &str| node.attr(name).map(|value| value.to_string());
    if hides(&name, attribute) {
        return true;
    }
    // It will be shown.
    node.remove_attr("hidden");
    false
}

/// Returns whether an element shows nothing, or nothing of its content. `name` is in lower case, and
/// `attribute` returns the value of an attribute.
pub(super) fn hides(name: &str, attribute: impl Fn(&str) -> Option<String>) -> bool {
    if INVISIBLE.contains(&name) {
        return true;
    }
    if attribute("hidden").is_some() {
        return !attribute("id").is_some_and(|id| is_streamed(&id));
    }
    attribute("aria-hidden").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        || attribute("style").is_some_and(|value| style::hides(&value))
        || name == "dialog" && attribute("open").is_none()
        || name == "img" && is_pixel(attribute)
}

/// Returns whether React will show the element of this id: it streams late parts of a page as `<div hidden
/// id="S:1">`.
fn is_streamed(id: &str) -> bool {
    let number = id.strip_prefix("S:").unwrap_or_default();
    !number.is_empty() && number.chars().all(|c| c.is_ascii_hexdigit())
}

/// Returns whether an image is a tracking pixel.
fn is_pixel(attribute: impl Fn(&str) -> Option<String>) -> bool {
    ["width", "height"].into_iter().any(|name| {
        let size = attribute(name).and_then(|size| size.trim().parse::<u32>().ok());
        size.is_some_and(|size| size <= 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::{hidden_ways::WAYS, parse::parse};

    #[test]
    fn hidden_text_is_removed() {
        for way in WAYS {
            let document = parse(&format!("<p>before</p>{way}<p>after</p>")).unwrap();
            remove(&document);
            let html = document.html();
            assert!(!html.contains("secret"), "{way}: {html}");
            assert!(html.contains("before") && html.contains("after"), "{way}: {html}");
        }
    }

    #[test]
    fn streamed_content_stays() {
        let document =
            parse("<div hidden id='S:1f'>late</div><div hidden id='S:'>no</div>").unwrap();
        remove(&document);
        assert_eq!(document.text().trim(), "late");
    }
}
