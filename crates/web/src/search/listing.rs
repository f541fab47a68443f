//! Results for models and programs.

use std::fmt::Write;

use rockbot_tools::ToolResult;
use serde_json::{Value, json};
use url::Url;

use super::{
    plain_text::{escaped, plain_text},
    provider::{Found, SearchHit, SearchQuery},
};
use crate::one_line::one_line;

/// Limits, in characters.
const MAX_TITLE: usize = 200;
const MAX_SNIPPET: usize = 500;
const MAX_AGE: usize = 40;
const MAX_QUERY: usize = 400;
/// Longest URL, in bytes.
const MAX_URL: usize = 2_000;

/// A result that can be shown.
struct Line {
    title: String,
    url: String,
    snippet: String,
    age: Option<String>,
}

/// Creates the result of a search: a line for each page, and the same as JSON.
pub(super) fn listing(provider: &str, query: &SearchQuery, found: &Found) -> ToolResult {
    let lines = found.hits.iter().filter_map(line);
    let lines: Vec<Line> = lines.take(query.count.into()).collect();
    let corrected = found.corrected.as_deref().map(|text| plain_text(text, MAX_QUERY));
    let corrected = corrected.filter(|text| !text.is_empty() && *text != query.text);
    let text = text(provider, query, corrected.as_deref(), &lines);
    let details = json!({
        "provider": provider,
        "query": query.text,
        "correctedQuery": corrected,
        "results": lines.iter().map(details).collect::<Vec<_>>(),
    });
    ToolResult::text(text).with_details(details)
}

fn text(provider: &str, query: &SearchQuery, corrected: Option<&str>, lines: &[Line]) -> String {
    let query_text = one_line(&query.text, MAX_QUERY);
    let mut text = match lines.len() {
        0 => "No results found.".to_owned(),
        1 => format!("1 result for \"{query_text}\" ({provider})"),
        count => format!("{count} results for \"{query_text}\" ({provider})"),
    };
    if let Some(corrected) = corrected {
        let _ = write!(text, "\nThe service searched for \"{corrected}\" instead.");
    }
    for (number, line) in (1..).zip(lines) {
        let Line { title, url, snippet, age } = line;
        let _ = write!(text, "\n{number}. [{}]({url})", escaped(title));
        if !snippet.is_empty() {
            let _ = write!(text, " — {}", escaped(snippet));
        }
        if let Some(age) = age {
            let _ = write!(text, " ({})", escaped(age));
        }
    }
    text
}

fn details(line: &Line) -> Value {
    json!({"title": line.title, "url": line.url, "snippet": line.snippet, "age": line.age})
}

fn line(hit: &SearchHit) -> Option<Line> {
    let url = web_url(&hit.url)?;
    let title = plain_text(&hit.title, MAX_TITLE);
    let title =
        if title.is_empty() { url.host_str().unwrap_or_default().to_owned() } else { title };
    // A parenthesis would end the link.
    let url = url.as_str().replace('(', "%28").replace(')', "%29");
    let age = hit.age.as_deref().map(|age| plain_text(age, MAX_AGE));
    Some(Line {
        title,
        snippet: plain_text(&hit.snippet, MAX_SNIPPET),
        age: age.filter(|age| !age.is_empty()),
        url: (url.len() <= MAX_URL).then_some(url)?,
    })
}

/// Parses a URL that may be shown: http or https, without credentials.
fn web_url(text: &str) -> Option<Url> {
    let text = (text.len() <= MAX_URL).then_some(text)?;
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    (is_web && url.username().is_empty() && url.password().is_none()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> SearchQuery {
        SearchQuery { text: text.to_owned(), count: 5, freshness: None }
    }

    fn hit(title: &str, url: &str, snippet: &str) -> SearchHit {
        SearchHit {
            title: title.to_owned(),
            url: url.to_owned(),
            snippet: snippet.to_owned(),
            age: None,
        }
    }

    fn shown(hits: Vec<SearchHit>) -> (String, Value) {
        let found = Found { hits, corrected: None };
        let result = listing("brave", &query("rust"), &found);
        (result.to_text().into_owned(), result.details.expect("details"))
    }

    #[test]
    fn results_are_numbered_lines_with_age() {
        let mut first =
            hit("The <b>Rust</b> language", "https://www.rust-lang.org/", "Fast &amp; safe");
        first.age = Some("2 days ago".to_owned());
        let (text, details) = shown(vec![first, hit("", "https://docs.rs/a", "")]);
        assert_eq!(
            text,
            "2 results for \"rust\" (brave)\n\
             1. [The Rust language](https://www.rust-lang.org/) — Fast & safe (2 days ago)\n\
             2. [docs.rs](https://docs.rs/a)"
        );
        assert_eq!(details["results"][0]["snippet"], "Fast & safe");
        assert_eq!(details["results"][0]["age"], "2 days ago");
        assert_eq!(details["provider"], "brave");
    }

    #[test]
    fn correction_is_reported() {
        let found = Found { hits: Vec::new(), corrected: Some("rust <b>lang</b>".to_owned()) };
        let text = listing("brave", &query("rsut lang"), &found).to_text().into_owned();
        assert_eq!(text, "No results found.\nThe service searched for \"rust lang\" instead.");
    }

    #[test]
    fn no_results_are_no_error() {
        let (text, _) = shown(Vec::new());
        assert_eq!(text, "No results found.");
        assert!(!listing("brave", &query("rust"), &Found::default()).is_error);
    }

    #[test]
    fn only_web_pages_are_shown() {
        let long = format!("https://example.com/{}", "x".repeat(MAX_URL));
        let urls = [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "https://user:secret@example.com/",
            "/relative",
            "https://",
            &long,
        ];
        let hits = urls.iter().map(|url| hit("t", url, "s")).collect();
        assert_eq!(shown(hits).0, "No results found.");
    }

    #[test]
    fn hostile_texts_stay_on_their_line() {
        let hostile = [
            "a](https://evil.example/) [b",
            "first\n2. [fake](https://evil.example/) — fake",
            "x&#10;&#10;## Heading\u{2029}y",
            "\u{202e}gnp.exe\u{2066}\u{200b}",
            "\\](https://evil.example/)",
            "`code` <script>alert(1)</script>&lt;b&gt;",
            "\u{1b}]0;title\u{7}\r\rtext\u{b}\u{c}",
        ];
        let hits = hostile.iter().map(|text| hit(text, "https://example.com/a(b)c", text));
        let (text, details) = shown(hits.take(5).collect());
        let more = hostile[5..].iter().map(|text| hit(text, "https://example.com/", text));
        let (more, _) = shown(more.collect());
        assert_eq!((text.lines().count(), more.lines().count()), (6, 3), "{text}\n{more}");
        assert!(text.lines().skip(1).all(|line| line.contains("](https://example.com/a%28b%29c)")));
        for line in text.lines().chain(more.lines()).skip(1) {
            assert!(!line.chars().any(rockbot_contracts::outside_text::is_escaped), "{line:?}");
            let links = line.replace("\\\\", "").replace("\\]", "").matches("](").count();
            assert!(links <= 1, "{line}");
        }
        assert_eq!(details["results"][0]["title"], hostile[0]);
    }

    #[test]
    fn number_and_length_of_results_are_bounded() {
        let page = || hit(&"t".repeat(1_000_000), "https://example.com/", &"s".repeat(1_000_000));
        let (text, _) = shown((0..50).map(|_| page()).collect());
        assert_eq!(text.lines().count(), 6);
        assert!(text.chars().count() < 6 * 800);
    }
}
