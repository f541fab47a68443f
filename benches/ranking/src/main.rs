//! The ranker against tantivy: the same 10,000 short documents, the same queries, the ten best, both
//! in memory and on one thread, alternated query by query in one run.
//!
//! `cargo xtask bench ranking` runs it. Tantivy is asked twice: with the query as text, as the ranker
//! is, and with a query that was parsed before.

use std::{hint::black_box, time::Instant};

use tantivy::{
    Index, IndexWriter, Searcher, TantivyDocument, Term,
    collector::TopDocs,
    query::{BooleanQuery, Occur, Query, QueryParser, TermQuery},
    schema::{Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions},
};

/// The ranker alone: it needs nothing of its crate.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../crates/memory/src/ranker.rs"]
mod ranker;

use ranker::Ranker;

const DOCUMENTS: usize = 10_000;
const WORDS: u64 = 4_000;
const QUERIES: usize = 500;
const ROUNDS: usize = 7;
const BEST: usize = 10;

type Failure = Box<dyn std::error::Error>;

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A word; few are frequent and most are rare, as in a language.
    fn word(&mut self) -> String {
        let most = 1 + self.below(WORDS);
        format!("w{}", self.below(most))
    }

    fn words(&mut self, count: u64) -> String {
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

struct Tantivy {
    searcher: Searcher,
    parser: QueryParser,
    text: Field,
}

impl Tantivy {
    fn over(documents: &[String]) -> Result<Self, Failure> {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default().set_index_option(IndexRecordOption::WithFreqs);
        let text = schema.add_text_field("text", TextOptions::default().set_indexing_options(indexing));
        let number = schema.add_u64_field("number", STORED);
        let index = Index::create_in_ram(schema.build());
        let mut writer: IndexWriter = index.writer_with_num_threads(1, 100_000_000)?;
        for (at, document) in documents.iter().enumerate() {
            let mut entry = TantivyDocument::default();
            entry.add_text(text, document);
            entry.add_u64(number, at as u64);
            writer.add_document(entry)?;
        }
        writer.commit()?;
        let searcher = index.reader()?.searcher();
        assert_eq!(searcher.segment_readers().len(), 1, "one segment, as fast as it gets");
        Ok(Self { searcher, parser: QueryParser::for_index(&index, vec![text]), text })
    }

    fn parsed(&self, query: &str) -> Box<dyn Query> {
        let words = query.split(' ').map(|word| {
            let term = Term::from_field_text(self.text, word);
            let query = TermQuery::new(term, IndexRecordOption::WithFreqs);
            (Occur::Should, Box::new(query) as Box<dyn Query>)
        });
        Box::new(BooleanQuery::new(words.collect()))
    }

    fn search(&self, query: &dyn Query) -> Result<usize, Failure> {
        Ok(self.searcher.search(query, &TopDocs::with_limit(BEST))?.len())
    }
}

fn microseconds(work: impl FnOnce() -> Result<usize, Failure>) -> Result<f64, Failure> {
    let begun = Instant::now();
    black_box(work()?);
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Failure> {
    let mut numbers = Numbers(0x2545_F491_4F6C_DD1D);
    let documents: Vec<_> = (0..DOCUMENTS)
        .map(|_| {
            let count = 8 + numbers.below(17);
            numbers.words(count)
        })
        .collect();
    let queries: Vec<_> = (0..QUERIES)
        .map(|_| {
            let count = 2 + numbers.below(4);
            numbers.words(count)
        })
        .collect();
    let begun = Instant::now();
    let ranker = Ranker::from_texts(&documents);
    let built = begun.elapsed();
    let begun = Instant::now();
    let tantivy = Tantivy::over(&documents)?;
    println!("built {DOCUMENTS} documents: ranker {built:.1?}, tantivy {:.1?}", begun.elapsed());
    let parsed: Vec<_> = queries.iter().map(|query| tantivy.parsed(query)).collect();
    for (query, parsed) in queries.iter().zip(&parsed) {
        let found = ranker.search(query, BEST).len();
        assert_eq!(found, tantivy.search(parsed.as_ref())?, "both find as much: {query}");
    }
    let mut against = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let (mut ours, mut theirs, mut theirs_parsed) = (Vec::new(), Vec::new(), Vec::new());
        for (query, parsed) in queries.iter().zip(&parsed) {
            ours.push(microseconds(|| Ok(ranker.search(query, BEST).len()))?);
            theirs.push(microseconds(|| {
                tantivy.search(tantivy.parser.parse_query(query)?.as_ref())
            })?);
            theirs_parsed.push(microseconds(|| tantivy.search(parsed.as_ref()))?);
        }
        let (ours, theirs, parsed) = (median(ours), median(theirs), median(theirs_parsed));
        println!(
            "round {round}: ranker {ours:.1} µs, tantivy {theirs:.1} µs, parsed before {parsed:.1} µs"
        );
        against.0.push(ours / theirs);
        against.1.push(ours / parsed);
    }
    println!(
        "median of the ratios: {:.2} of tantivy, {:.2} of tantivy with parsed queries",
        median(against.0),
        median(against.1)
    );
    Ok(())
}
