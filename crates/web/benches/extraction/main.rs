//! Benchmark of the extraction of main content, beside other extractors:
//! `cargo xtask bench extraction --corpus DIR`.
//!
//! DIR holds a corpus of pages with their expected content, in one of two forms:
//! - `ground-truth/NAME.json` and `html/NAME.html` (or `.html.gz`), as WCXB has them;
//! - `ground-truth.json` and `html/NAME.html` (or `.html.gz`), as Zyte's benchmark has them.
//!
//! The measures are the F1 of words, averaged over pages, and the F1 of the average precision and recall of
//! runs of four words; of the expected and unwanted snippets of a page, the share that is present or
//! absent.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "a benchmark prints and may panic"
)]

mod goals;
mod peer;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use rockbot_web::{Extractor, HtmlPage, STACK_BYTES, TwoCandidates};
use serde_json::Value;
use url::Url;

use self::peer::Peer;

/// A page and its expected content.
struct Case {
    html: PathBuf,
    url: Url,
    kind: String,
    expected: String,
    with: Vec<String>,
    without: Vec<String>,
}

/// Sums over pages.
#[derive(Default)]
struct Score {
    pages: usize,
    f1: f64,
    runs: Runs,
    present: Share,
    absent: Share,
    empty: usize,
    time: Duration,
}

/// Scores by kind of page, and of `all`.
type Scores = BTreeMap<String, Score>;

/// Sums of precision and recall of runs of words, with the number of pages that have one.
#[derive(Default)]
struct Runs {
    precision: (f64, u32),
    recall: (f64, u32),
}

#[derive(Default)]
struct Share {
    hits: usize,
    total: usize,
}

/// The text that an extractor found in a page.
struct Extracted {
    text: String,
    time: Duration,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (corpus, peers) = match arguments.as_slice() {
        ["--corpus", corpus, peers @ ..] => (*corpus, Peer::from_arguments(peers)),
        _ => ("", None),
    };
    let Some(peers) = peers else {
        eprintln!("usage: extraction --corpus DIR [--peer NAME PROGRAM SCRIPT]...");
        return ExitCode::from(64);
    };
    let cases = cases(Path::new(corpus));
    if cases.is_empty() {
        eprintln!("{corpus} has no pages; expected ground-truth/ or ground-truth.json, and html/");
        return ExitCode::FAILURE;
    }
    let own = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let extracting = thread.spawn_scoped(scope, || extract(&cases)).expect("a thread");
        extracting.join().expect("no panic")
    });
    let own = scores(&cases, &own);
    print("RockBot", &own);
    let mut others = BTreeMap::new();
    for peer in peers {
        let scores = scores(&cases, &peer.extract(&cases));
        print(&peer.name, &scores);
        others.insert(peer.name, scores);
    }
    goals::print(&own, &others);
    ExitCode::SUCCESS
}

fn extract(cases: &[Case]) -> Vec<Extracted> {
    let extracted = cases.iter().map(|case| {
        let html = read(&case.html);
        let started = processor_time();
        let page = HtmlPage { html: &html, url: &case.url, whole: false };
        let markdown = TwoCandidates.extract(page).markdown;
        let time = processor_time() - started;
        Extracted { text: without_targets(&markdown), time }
    });
    extracted.collect()
}

/// Returns the processor time that this thread has used.
fn processor_time() -> Duration {
    let usage = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = usage.split(' ').next().and_then(|count| count.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

fn scores(cases: &[Case], extracted: &[Extracted]) -> Scores {
    let mut scores = Scores::new();
    for (case, Extracted { text, time }) in cases.iter().zip(extracted) {
        for kind in ["all", case.kind.as_str()] {
            scores.entry(kind.to_owned()).or_default().add(case, text, *time);
        }
    }
    scores
}

fn print(name: &str, scores: &Scores) {
    println!("{name}:");
    println!("| pages | number | word F1 | run F1 | with | without | empty | CPU |");
    println!("|---|---|---|---|---|---|---|---|");
    for (kind, score) in scores {
        println!(
            "| {kind} | {} | {:.3} | {:.3} | {} | {} | {} | {:.1} s |",
            score.pages,
            score.word_f1(),
            score.runs.f1(),
            score.present.text(),
            score.absent.text(),
            score.empty,
            score.time.as_secs_f64(),
        );
    }
}

impl Score {
    fn word_f1(&self) -> f64 {
        self.f1 / self.pages as f64
    }

    fn add(&mut self, case: &Case, text: &str, time: Duration) {
        self.pages += 1;
        self.f1 += f1(text, &case.expected);
        self.runs.add(text, &case.expected);
        self.empty += usize::from(text.trim().is_empty() && !case.expected.trim().is_empty());
        self.time += time;
        let text = words(text).collect::<Vec<_>>().join(" ");
        let contains = |snippet: &str| {
            let snippet = words(snippet).collect::<Vec<_>>().join(" ");
            text.contains(&snippet)
        };
        self.present.add(&case.with, contains);
        self.absent.add(&case.without, |snippet| !contains(snippet));
    }
}

impl Runs {
    fn add(&mut self, text: &str, expected: &str) {
        let (text, expected) = (runs(text), runs(expected));
        let (common, found, wanted) = common(text, expected);
        if found > 0 {
            self.precision = (self.precision.0 + common / f64::from(found), self.precision.1 + 1);
        }
        if wanted > 0 {
            self.recall = (self.recall.0 + common / f64::from(wanted), self.recall.1 + 1);
        }
    }

    fn f1(&self) -> f64 {
        let precision = self.precision.0 / f64::from(self.precision.1);
        let recall = self.recall.0 / f64::from(self.recall.1);
        2.0 * precision * recall / (precision + recall)
    }
}

impl Share {
    fn add(&mut self, snippets: &[String], is_hit: impl Fn(&str) -> bool) {
        self.total += snippets.len();
        self.hits += snippets.iter().filter(|snippet| is_hit(snippet)).count();
    }

    fn text(&self) -> String {
        match self.total {
            0 => "–".to_owned(),
            total => format!("{:.3}", self.hits as f64 / total as f64),
        }
    }
}

fn f1(text: &str, expected: &str) -> f64 {
    let (common, found, wanted) = common(words(text), words(expected));
    match found + wanted {
        0 => 1.0,
        total => 2.0 * common / f64::from(total),
    }
}

/// Counts the parts that both texts have, and those of each.
fn common(
    text: impl Iterator<Item = String>,
    expected: impl Iterator<Item = String>,
) -> (f64, u32, u32) {
    let mut left = HashMap::new();
    let (mut common, mut found, mut wanted) = (0, 0, 0);
    for part in expected {
        *left.entry(part).or_insert(0_u32) += 1;
        wanted += 1;
    }
    for part in text {
        found += 1;
        if let Some(count) = left.get_mut(&part).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    (f64::from(common), found, wanted)
}

/// Returns the runs of four words.
fn runs(text: &str) -> impl Iterator<Item = String> {
    let words: Vec<_> = words(text).collect();
    let runs: Vec<_> = words.windows(4).map(|run| run.join(" ")).collect();
    runs.into_iter()
}

/// Returns runs of letters, digits and underscores in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Removes images, the targets of links and the escapes of Markdown: the corpora expect plain text.
fn without_targets(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let label = before.rfind("![").filter(|label| !before[*label..].contains('\n'));
        text.push_str(&before[..label.unwrap_or(before.len())]);
        text.push(' ');
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace('\\', "")
}

fn cases(corpus: &Path) -> Vec<Case> {
    let single = corpus.join("ground-truth.json");
    let mut cases = match fs::read_to_string(&single) {
        Ok(text) => {
            let pages: BTreeMap<String, Value> = serde_json::from_str(&text).expect("JSON");
            pages.iter().filter_map(|(name, page)| zyte_case(corpus, name, page)).collect()
        }
        Err(_) => wcxb_cases(corpus),
    };
    cases.sort_by(|one, other| one.html.cmp(&other.html));
    cases
}

fn zyte_case(corpus: &Path, name: &str, page: &Value) -> Option<Case> {
    Some(Case {
        html: html(corpus, name)?,
        url: url(page),
        kind: "news".to_owned(),
        expected: page["articleBody"].as_str()?.to_owned(),
        with: Vec::new(),
        without: Vec::new(),
    })
}

fn wcxb_cases(corpus: &Path) -> Vec<Case> {
    let Ok(files) = fs::read_dir(corpus.join("ground-truth")) else { return Vec::new() };
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.filter_map(|file| wcxb_case(corpus, &file)).collect()
}

fn wcxb_case(corpus: &Path, file: &Path) -> Option<Case> {
    let page: Value = serde_json::from_slice(&fs::read(file).ok()?).expect("JSON");
    let truth = &page["ground_truth"];
    let snippets = |key: &str| {
        let list = truth[key].as_array().into_iter().flatten();
        list.filter_map(|snippet| Some(snippet.as_str()?.to_owned())).collect()
    };
    Some(Case {
        html: html(corpus, file.file_stem()?.to_str()?)?,
        url: url(&page),
        kind: page["_internal"]["page_type"]["primary"].as_str().unwrap_or("other").to_owned(),
        expected: truth["main_content"].as_str()?.to_owned(),
        with: snippets("with"),
        without: snippets("without"),
    })
}

fn url(page: &Value) -> Url {
    let url = page["url"].as_str().and_then(|url| Url::parse(url).ok());
    url.unwrap_or_else(|| Url::parse("https://example.com/").expect("a URL"))
}

fn html(corpus: &Path, name: &str) -> Option<PathBuf> {
    let names = [format!("{name}.html"), format!("{name}.html.gz")];
    names.into_iter().map(|name| corpus.join("html").join(name)).find(|file| file.is_file())
}

fn read(file: &Path) -> String {
    let bytes = if file.extension().is_some_and(|extension| extension == "gz") {
        Command::new("gzip").arg("-dc").arg(file).output().expect("gzip").stdout
    } else {
        fs::read(file).expect("a readable page")
    };
    String::from_utf8_lossy(&bytes).into_owned()
}
