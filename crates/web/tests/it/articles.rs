//! The main content of real pages, in eleven languages.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use rockbot_web::{Extractor, HtmlPage, TwoCandidates};
use url::Url;

const VARIABLE: &str = "ROCKBOT_TEST_ARTICLE_PAGES";

/// Returns the folder of the pages, `html/NAME.html`, and the text of their articles, `txt/NAME.txt`.
fn folder() -> PathBuf {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let Some(folder) = folder else {
        panic!("{VARIABLE} is not set: run `cargo xtask test`, which downloads pages from PyPI")
    };
    folder.into()
}

/// Returns the words of a text: runs of letters and digits, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Returns the F1 of the words of Markdown. Targets of links count as words that are not expected.
fn f1(text: &str, expected: &str) -> f64 {
    let mut left = HashMap::new();
    let (mut common, mut total) = (0_u32, 0_u32);
    let (wanted, found) = (words(expected), words(text));
    for word in wanted {
        *left.entry(word).or_insert(0_u32) += 1;
        total += 1;
    }
    for word in found {
        total += 1;
        if let Some(count) = left.get_mut(&word).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    2.0 * f64::from(common) / f64::from(total.max(1))
}

fn extracted(page: &Path) -> String {
    let html = fs::read(page).unwrap();
    let url = Url::parse("https://example.com/").unwrap();
    let html = String::from_utf8_lossy(&html);
    TwoCandidates.extract(HtmlPage { html: &html, url: &url, whole: false }).markdown
}

#[test]
fn articles_of_real_pages_are_found() {
    let (mut scores, folder) = (Vec::new(), folder());
    for entry in fs::read_dir(folder.join("html")).unwrap() {
        let page = entry.unwrap().path();
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        if let Ok(expected) = fs::read_to_string(folder.join("txt").join(format!("{name}.txt"))) {
            scores.push((f1(&extracted(&page), &expected), name));
        }
    }
    scores.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(scores.len() >= 23, "{} pages", scores.len());
    // Pages in Chinese and Japanese that declare no main part are read whole, with their menus.
    let found = scores.iter().filter(|(score, _)| *score >= 0.65).count();
    assert!(found >= 18, "{found} articles: {scores:?}");
    let median = scores[scores.len() / 2].0;
    assert!(median >= 0.88, "{median}: {scores:?}");
}
