//! The main content of a page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dom_query::Document;
use url::Url;

use super::{
    candidates::{declared, readable},
    hidden,
    json_ld::StructuredData,
    links,
    markdown::markdown,
    markup,
    parse::parse,
    stripped::stripped,
    words::count_words,
};

/// Words below which a text is not taken for the content of a page.
const MIN_WORDS: usize = 50;
/// Words from which on the readable part is not too short, whatever else there is.
const ENOUGH_WORDS: usize = 800;
/// Scripts from which on a page without text is taken for one that builds itself in the browser.
const MIN_SCRIPTS: usize = 3;
/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// A page to read.
#[derive(Debug, Clone, Copy)]
pub struct HtmlPage<'a> {
    /// Its markup.
    pub html: &'a str,
    /// Its address, for relative links.
    pub url: &'a Url,
    /// Everything that is visible is wanted, not only the main content.
    pub whole: bool,
}

/// Content of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extract {
    /// Title on one line, at most 200 characters; empty without one.
    pub title: String,
    /// Content.
    pub markdown: String,
    /// The part of the page that the content was taken from.
    pub part: Part,
    /// The page seems to build its content in the browser.
    pub needs_scripts: bool,
}

/// Part of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// The part that scores best by its paragraphs.
    Readable,
    /// The part that the page declares as its main part.
    Declared,
    /// The text in its structured data.
    StructuredData,
    /// Everything that is visible.
    #[default]
    Whole,
    /// The text between the tags, because the markup exceeds the limits.
    Stripped,
}

impl Part {
    /// Returns the name for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readable => "readable",
            Self::Declared => "declared",
            Self::StructuredData => "structured_data",
            Self::Whole => "whole",
            Self::Stripped => "stripped",
        }
    }
}

/// Finds the content of a page.
///
/// It runs on a thread with a stack of [`STACK_BYTES`](crate::STACK_BYTES). Markup of any shape must
/// end in bounded time and space.
pub trait Extractor: Send + Sync + 'static {
    /// Returns the content of a page. It is empty if the page shows no text.
    fn extract(&self, page: HtmlPage<'_>) -> Extract;
}

/// Compares two candidates by a rule that was tuned on 1,497 pages. See ADR 0035.
#[derive(Debug, Clone, Copy, Default)]
pub struct TwoCandidates;

impl Extractor for TwoCandidates {
    fn extract(&self, page: HtmlPage<'_>) -> Extract {
        let parsed = markup::bounded(page.html).ok().and_then(|html| parse(&html).ok());
        let Some(document) = parsed else {
            let markdown = stripped(page.html);
            return Extract { markdown, part: Part::Stripped, ..Extract::default() };
        };
        let title = title(&document);
        let data = StructuredData::read(&document);
        let scripts = document.select("script").length();
        let asks_for_scripts =
            document.select("noscript").text().to_lowercase().contains("javascript");
        hidden::remove(&document);
        links::resolve(&document, page.url);
        let (part, markdown) = match page.whole {
            true => (Part::Whole, body(&document)),
            false => main_content(&document, data),
        };
        let has_little = count_words(&markdown) < MIN_WORDS;
        let needs_scripts = has_little && (scripts >= MIN_SCRIPTS || asks_for_scripts);
        Extract { title, markdown, part, needs_scripts }
    }
}

fn main_content(document: &Document, data: StructuredData) -> (Part, String) {
    let readable = catch_unwind(AssertUnwindSafe(|| readable(document.clone())));
    let readable = readable.ok().flatten().unwrap_or_default();
    let declared = declared(&document.clone());
    let (in_readable, in_declared) = (count_words(&readable), count_words(&declared));
    if in_readable.max(in_declared) >= MIN_WORDS {
        return match prefers_readable(in_readable, in_declared, data.is_article) {
            true => (Part::Readable, readable),
            false => (Part::Declared, declared),
        };
    }
    let structured = data.text.filter(|text| count_words(text) >= MIN_WORDS);
    if let Some(text) = structured {
        return (Part::StructuredData, text);
    }
    (Part::Whole, body(document))
}

/// Returns whether the readable part is the better one. It wins on articles; elsewhere it misses content
/// when it is much shorter than the declared part.
const fn prefers_readable(readable: usize, declared: usize, is_article: bool) -> bool {
    if is_article {
        readable * 100 >= declared * 15 && readable >= MIN_WORDS
    } else {
        readable * 2 >= declared || readable >= ENOUGH_WORDS
    }
}

fn body(document: &Document) -> String {
    document.body().map(|body| markdown(&body)).unwrap_or_default()
}

fn title(document: &Document) -> String {
    let heading = || document.select_single("h1").text();
    let title = document.select_single("head title").text();
    let title = if title.trim().is_empty() { heading() } else { title };
    let words: Vec<_> = title.split_whitespace().collect();
    rockbot_contracts::outside_text::plain(&words.join(" "), MAX_TITLE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract(html: &str) -> Extract {
        let url = Url::parse("https://example.com/docs/a").unwrap();
        TwoCandidates.extract(HtmlPage { html, url: &url, whole: false })
    }

    fn words(count: usize) -> String {
        (0..count).map(|number| format!("word{number}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn surroundings_are_left_out() {
        let html = format!(
            "<title> A\n page </title><nav>Menu Home</nav><main><h1>Topic</h1><p>{}</p>\
             <p>See <a href=b>more</a></p></main><footer>Imprint</footer>",
            words(60)
        );
        let page = extract(&html);
        assert_eq!(page.title, "A page");
        assert!(page.markdown.contains("word59"), "{page:?}");
        assert!(page.markdown.contains("[more](https://example.com/docs/b)"), "{page:?}");
        for surrounding in ["Menu", "Imprint"] {
            assert!(!page.markdown.contains(surrounding), "{page:?}");
        }
        assert!(!page.needs_scripts);
    }

    #[test]
    fn readable_part_is_preferred_unless_much_is_missing() {
        assert!(prefers_readable(500, 900, false));
        assert!(!prefers_readable(400, 900, false));
        assert!(prefers_readable(800, 9000, false));
        assert!(prefers_readable(200, 900, true));
        assert!(!prefers_readable(100, 900, true));
        assert!(!prefers_readable(40, 100, true));
    }

    #[test]
    fn structured_text_replaces_an_empty_page() {
        let html = format!(
            "<script type=application/ld+json>{{\"@type\": \"Article\", \"articleBody\": \"{}\"}}</script>\
             <div id=root></div>",
            words(80)
        );
        let page = extract(&html);
        assert_eq!(page.part, Part::StructuredData);
        assert!(page.markdown.ends_with("word79"), "{page:?}");
    }

    #[test]
    fn short_page_is_returned_whole() {
        let page = extract("<header>Head</header><p>Only this.</p>");
        assert_eq!((page.part, page.markdown.as_str()), (Part::Whole, "Head\n\nOnly this."));
        assert!(!page.needs_scripts);
    }

    #[test]
    fn page_that_needs_scripts_is_recognized() {
        let shell = "<div id=root></div><script></script><script></script><script></script>";
        assert!(extract(shell).needs_scripts);
        assert!(extract("<noscript>Please enable JavaScript.</noscript>").needs_scripts);
        assert!(!extract("<noscript>Please enable images.</noscript>").needs_scripts);
    }

    #[test]
    fn too_complex_page_is_stripped() {
        let page = extract(&format!("<p>text{}", "<div>".repeat(1000)));
        assert_eq!((page.part, page.markdown.as_str()), (Part::Stripped, "text"));
    }
}
