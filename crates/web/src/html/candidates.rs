//! Two ways to find the main part of a page.

use dom_query::{Document, NodeRef};
use dom_smoothie::{Config, Readability};

use super::markdown::markdown;

/// Elements and roles around the main part.
const SURROUNDINGS: &str = "nav, header, footer, aside, form, svg, button, \
    [role=navigation], [role=banner], [role=contentinfo], [role=complementary]";

/// Returns the part that scores best by its paragraphs, as the reader view of a browser finds it. Made for
/// articles.
pub(super) fn readable(document: Document) -> Option<String> {
    let config = Config { disable_json_ld: true, ..Config::default() };
    let mut readability = Readability::with_document(document, None, Some(config)).ok()?;
    readability.parse().ok()?;
    let root = readability.doc.select_single("#readability-page-1");
    root.nodes().first().map(markdown)
}

/// Returns the part that the page declares as its main part, without what surrounds it. Made for
/// documentation, forums and lists.
pub(super) fn declared(document: &Document) -> String {
    document.select(SURROUNDINGS).remove();
    declared_root(document).map(|root| markdown(&root)).unwrap_or_default()
}

fn declared_root(document: &Document) -> Option<NodeRef<'_>> {
    let first = |selector| document.select_single(selector).nodes().first().copied();
    let articles = document.select("article");
    let single = || articles.nodes().first().copied().filter(|_| articles.length() == 1);
    first("main").or_else(|| first("[role=main]")).or_else(single).or_else(|| document.body())
}
