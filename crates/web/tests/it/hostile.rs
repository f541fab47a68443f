//! Pages that are made to exhaust a parser.

use proptest::prelude::*;
use rockbot_web::{Extract, Extractor, HtmlPage, Part, TwoCandidates};
use url::Url;

use crate::hostile_pages::{numbered, pages, piece};

/// Extracts a page on a thread with the stack that the tool gives it.
fn extract(html: String) -> Extract {
    let thread = std::thread::Builder::new().stack_size(rockbot_web::STACK_BYTES);
    let extract = move || {
        let url = Url::parse("https://example.com/").unwrap();
        TwoCandidates.extract(HtmlPage { html: &html, url: &url, whole: false })
    };
    thread.spawn(extract).unwrap().join().unwrap()
}

#[test]
fn hostile_pages_are_survived() {
    for (name, html) in pages() {
        let size = html.len();
        let extract = extract(html);
        assert!(extract.markdown.contains("survived") || extract.part == Part::Stripped, "{name}");
        // Indentation and marks add to the text, but do not multiply it.
        assert!(extract.markdown.len() < size * 8 + 1000, "{name}: {}", extract.markdown.len());
    }
}

/// The scan takes the tag behind the script for the value of an attribute, and drops the part that is too long.
#[test]
fn misled_scan_keeps_its_bounds() {
    let attributes = numbered(5000, |number| format!(" a{number}=1"));
    let tag = format!("<script><!--<script></script><b c=\"--></script><p{attributes}>\">text");
    let extract = extract(tag.repeat(60));
    assert!(extract.markdown.len() < 10_000, "{}", extract.markdown.len());
    assert!(extract.markdown.contains("text"), "{extract:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_markup_is_extracted(pieces in prop::collection::vec(piece(), 0..60), copies in 1_usize..8) {
        let html = pieces.concat().repeat(copies);
        let url = Url::parse("https://example.com/").unwrap();
        for whole in [false, true] {
            let extract = TwoCandidates.extract(HtmlPage { html: &html, url: &url, whole });
            prop_assert!(extract.title.chars().count() <= 200);
            prop_assert!(!extract.title.contains('\n'));
        }
    }
}
