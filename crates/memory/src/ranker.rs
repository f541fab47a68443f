//! Full-text ranking: Okapi BM25 with a bonus for adjacent words.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, hash_map::Entry},
};

/// The saturation of term frequency; the usual value.
pub const K1: f64 = 1.5;
/// The length normalization, 0 to 1; the usual value.
pub const B: f64 = 0.75;
/// The weight of two words that are adjacent in both the query and a text, relative to a single word.
pub const PHRASE_WEIGHT: f64 = 2.0;

/// An in-memory full-text index. Texts can be added and removed at any time.
///
/// A word is a run of letters and digits, case-insensitive; names such as `getCurrentTime` are split. The
/// score of a text is the sum over the distinct words of the query of
/// `idf · tf · (K1 + 1) / (tf + K1 · (1 − B + B · length / average))`
/// with `idf = ln(1 + (N − n + 0.5) / (n + 0.5))`, and likewise over the pairs of adjacent words of the
/// query, each multiplied by [`PHRASE_WEIGHT`].
#[derive(Debug, Clone, Default)]
pub struct Ranker {
    /// Word ids.
    words: HashMap<Box<str>, u32>,
    /// By word id, each ordered by text id.
    postings: Vec<Vec<Posting>>,
    /// By pair of adjacent words.
    pairs: HashMap<(u32, u32), Vec<Posting>>,
    /// Word ids of each text, by text id; `None` for removed texts.
    texts: Vec<Option<Box<[u32]>>>,
    /// Number of words, by text id; kept apart, since a search needs only this.
    lengths: Vec<u32>,
    /// Text ids for reuse.
    free: Vec<u32>,
    /// Number of words in all texts.
    total_words: u64,
}

/// The frequency of a word or pair in a text.
#[derive(Debug, Clone, Copy)]
struct Posting {
    text: u32,
    count: u32,
}

/// A search result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The id of the text: its position in [`Ranker::from_texts`], or the value from [`Ranker::insert`].
    pub text: usize,
    /// The score, greater than 0.
    pub score: f64,
}

impl Ranker {
    /// Creates an index of up to 2³² texts, with ids from 0.
    #[must_use]
    pub fn from_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut index = Self::default();
        for text in texts {
            index.insert(text.as_ref());
        }
        index
    }

    /// Adds a text and returns its id, which may be that of a removed text.
    pub fn insert(&mut self, text: &str) -> usize {
        let word_ids: Box<[u32]> = words(text).map(|word| self.word_id(word)).collect();
        let id = self.free.pop().unwrap_or_else(|| {
            self.texts.push(None);
            self.lengths.push(0);
            to_u32(self.texts.len() - 1)
        });
        for &word in &word_ids {
            add_occurrence(&mut self.postings[word as usize], id);
        }
        for pair in word_ids.windows(2) {
            add_occurrence(self.pairs.entry((pair[0], pair[1])).or_default(), id);
        }
        self.total_words += word_ids.len() as u64;
        self.lengths[id as usize] = to_u32(word_ids.len());
        self.texts[id as usize] = Some(word_ids);
        id as usize
    }

    /// Removes a text. Returns whether it existed.
    pub fn remove(&mut self, text: usize) -> bool {
        let Some(word_ids) = self.texts.get_mut(text).and_then(Option::take) else { return false };
        let id = to_u32(text);
        for &word in &word_ids {
            remove_text(&mut self.postings[word as usize], id);
        }
        for pair in word_ids.windows(2) {
            if let Entry::Occupied(mut postings) = self.pairs.entry((pair[0], pair[1])) {
                remove_text(postings.get_mut(), id);
                if postings.get().is_empty() {
                    postings.remove();
                }
            }
        }
        self.total_words -= word_ids.len() as u64;
        self.lengths[text] = 0;
        self.free.push(id);
        true
    }

    /// Returns the number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len() - self.free.len()
    }

    /// Returns whether there are no texts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id of a word, new if the word is.
    fn word_id(&mut self, word: String) -> u32 {
        let next = to_u32(self.postings.len());
        let id = *self.words.entry(word.into_boxed_str()).or_insert(next);
        if id == next {
            self.postings.push(Vec::new());
        }
        id
    }

    /// Returns the `limit` texts with the highest scores, best first; ties are ordered by id. Texts without
    /// a word of the query are omitted.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<Ranked> {
        let query_words: Vec<Option<u32>> =
            words(query).map(|word| self.words.get(word.as_str()).copied()).collect();
        let distinct: BTreeSet<u32> = query_words.iter().flatten().copied().collect();
        let adjacent = query_words.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?)));
        let pairs: BTreeSet<(u32, u32)> = adjacent.collect();
        let mut scores = vec![0.0; self.texts.len()];
        for word in distinct {
            self.add_scores(&self.postings[word as usize], 1.0, &mut scores);
        }
        for pair in pairs {
            if let Some(postings) = self.pairs.get(&pair) {
                self.add_scores(postings, PHRASE_WEIGHT, &mut scores);
            }
        }
        let mut best = TopResults::new(limit);
        for (text, &score) in scores.iter().enumerate() {
            best.push(Ranked { text, score });
        }
        best.into_sorted()
    }

    /// Adds the weighted scores of a word or pair.
    fn add_scores(&self, postings: &[Posting], weight: f64, scores: &mut [f64]) {
        let (texts, matching) = (self.len() as f64, postings.len() as f64);
        let idf = (1.0 + (texts - matching + 0.5) / (matching + 0.5)).ln();
        let factor = weight * idf * (K1 + 1.0);
        let average = (self.total_words as f64 / texts.max(1.0)).max(f64::EPSILON);
        let (constant, per_word) = (K1 * (1.0 - B), K1 * B / average);
        for &Posting { text, count } in postings {
            let (text, count) = (text as usize, f64::from(count));
            let damping = constant + per_word * f64::from(self.lengths[text]);
            scores[text] += factor * count / (count + damping);
        }
    }

    /// Returns the `candidates` that match a query, best first.
    #[must_use]
    pub fn rank<'a, T>(
        candidates: &'a [T],
        text: impl Fn(&T) -> String,
        query: &str,
    ) -> Vec<&'a T> {
        Self::rank_with_scores(candidates, text, query)
            .into_iter()
            .map(|(candidate, _)| candidate)
            .collect()
    }

    /// Returns matching `candidates` with their scores, which are comparable only within one call.
    #[must_use]
    pub fn rank_with_scores<'a, T>(
        candidates: &'a [T],
        text: impl Fn(&T) -> String,
        query: &str,
    ) -> Vec<(&'a T, f64)> {
        let found = Self::from_texts(candidates.iter().map(text)).search(query, candidates.len());
        found.into_iter().map(|Ranked { text, score }| (&candidates[text], score)).collect()
    }
}

/// The best results so far.
struct TopResults {
    limit: usize,
    /// Up to twice the limit.
    results: Vec<Ranked>,
    /// The score that a result must exceed: of equal scores, the earlier text wins.
    threshold: f64,
}

impl TopResults {
    fn new(limit: usize) -> Self {
        let threshold = if limit == 0 { f64::INFINITY } else { 0.0 };
        Self { limit, results: Vec::new(), threshold }
    }

    fn push(&mut self, result: Ranked) {
        if result.score <= self.threshold {
            return;
        }
        self.results.push(result);
        if self.results.len() >= self.limit.saturating_mul(2) {
            let (_, last, _) = self.results.select_nth_unstable_by(self.limit - 1, by_rank);
            self.threshold = last.score;
            self.results.truncate(self.limit);
        }
    }

    fn into_sorted(mut self) -> Vec<Ranked> {
        self.results.sort_unstable_by(by_rank);
        self.results.truncate(self.limit);
        self.results
    }
}

/// Converts an id or a length; memory does not suffice for 2³² words or texts.
fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Increments the count of a text; postings stay ordered by text id.
fn add_occurrence(postings: &mut Vec<Posting>, text: u32) {
    match postings.last_mut() {
        Some(last) if last.text == text => last.count += 1,
        Some(last) if last.text > text => {
            match postings.binary_search_by_key(&text, |posting| posting.text) {
                Ok(index) => postings[index].count += 1,
                Err(index) => postings.insert(index, Posting { text, count: 1 }),
            }
        }
        _ => postings.push(Posting { text, count: 1 }),
    }
}

fn remove_text(postings: &mut Vec<Posting>, text: u32) {
    if let Ok(index) = postings.binary_search_by_key(&text, |posting| posting.text) {
        postings.remove(index);
    }
}

/// Orders results by descending score, then by id.
fn by_rank(a: &Ranked, b: &Ranked) -> Ordering {
    b.score.total_cmp(&a.score).then(a.text.cmp(&b.text))
}

/// Splits a text into lower-case words.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty());
    runs.flat_map(split_camel_case).map(str::to_lowercase)
}

/// Splits `getCurrentTime` into `get`, `Current` and `Time`.
fn split_camel_case(run: &str) -> impl Iterator<Item = &str> {
    let is_boundary = |(index, pair): (usize, (char, char))| {
        (pair.0.is_lowercase() && pair.1.is_uppercase()).then_some(index)
    };
    let indices = run.char_indices().skip(1).map(|(index, _)| index);
    let pairs = run.chars().zip(run.chars().skip(1));
    let starts = indices.zip(pairs).filter_map(is_boundary);
    let mut start = 0;
    starts.chain([run.len()]).map(move |end| &run[std::mem::replace(&mut start, end)..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: [&str; 5] = [
        "calendar: create, move and cancel a meeting; find a free slot",
        "salesforce: search leads, update an opportunity, create a lead",
        "github: create an issue, search code, list pull requests",
        "weather: the forecast for a city",
        "",
    ];

    fn ranked(query: &str) -> Vec<(usize, String)> {
        let index = Ranker::from_texts(SERVICES);
        let found = index.search(query, SERVICES.len()).into_iter();
        found.map(|result| (result.text, format!("{:.4}", result.score))).collect()
    }

    fn expected_ranking(expected: &[(usize, &str)]) -> Vec<(usize, String)> {
        expected.iter().map(|(text, score)| (*text, (*score).to_owned())).collect()
    }

    #[test]
    fn scores_follow_formula() {
        // Calculated from the formula for 5 texts of 11, 9, 9, 6 and 0 words.
        let one = |n: f64, tf: f64, length: f64| {
            let idf = (1.0 + (5.0 - n + 0.5) / (n + 0.5)).ln();
            idf * tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * length / 7.0))
        };
        let issue = format!("{:.4}", one(1.0, 1.0, 9.0));
        assert_eq!(ranked("issue"), expected_ranking(&[(2, &issue)]));
        let both = one(1.0, 1.0, 9.0) + one(3.0, 1.0, 9.0);
        let apart = format!("{both:.4}");
        assert_eq!(ranked("issue CREATE")[0], (2, apart));
        let phrase = one(2.0, 1.0, 9.0) + one(1.0, 1.0, 9.0) + 2.0 * one(1.0, 1.0, 9.0);
        assert_eq!(ranked("search code")[0], (2, format!("{phrase:.4}")));
    }

    #[test]
    fn better_matches_come_first() {
        let texts = |query| ranked(query).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        assert_eq!(texts("reschedule a meeting")[0], 0);
        assert_eq!(texts("search"), [1, 2]);
        assert_eq!(texts("forecast"), [3]);
        assert_eq!(texts("listPullRequests FindAFreeSlot"), [2, 0]);
        assert!(texts("aws").is_empty() && texts("").is_empty() && texts("!?").is_empty());
        let index = Ranker::from_texts(SERVICES);
        assert_eq!(index.search("create a search", 1).len(), 1);
        assert!(index.search("create", 0).is_empty());
        assert!(Ranker::default().search("create", 5).is_empty());
    }

    #[test]
    fn updated_index_ranks_like_a_fresh_one() {
        let mut index =
            Ranker::from_texts(["lost: create an issue, search code", SERVICES[0], "lost too"]);
        assert!(index.remove(0) && index.remove(2) && !index.remove(2) && !index.remove(9));
        assert_eq!(index.len(), 1);
        let mut ids = vec![(1, 0)];
        for (position, text) in SERVICES.iter().enumerate().skip(1) {
            ids.push((index.insert(text), position));
        }
        assert!(ids[1].0 == 2 && ids[2].0 == 0, "ids are reused: {ids:?}");
        let fresh = Ranker::from_texts(SERVICES);
        let (mut expected, mut actual) = (Vec::new(), Vec::new());
        for query in ["search code", "create a lead", "meeting", "lost", "the"] {
            let found = index.search(query, 9).into_iter();
            let original = |hit: Ranked| ids.iter().find(|(id, _)| *id == hit.text).unwrap().1;
            actual.push(
                found.map(|hit| (original(hit), hit.score.to_bits())).collect::<BTreeSet<_>>(),
            );
            let found = fresh.search(query, 9).into_iter();
            expected
                .push(found.map(|hit| (hit.text, hit.score.to_bits())).collect::<BTreeSet<_>>());
        }
        assert_eq!(actual, expected);
    }

    #[test]
    fn limited_search_equals_truncated_full_search() {
        let texts: Vec<_> = (0..500)
            .map(|index| "bus ".repeat(index % 7) + &"filler ".repeat(index % 11))
            .collect();
        let index = Ranker::from_texts(&texts);
        let all = index.search("bus", texts.len());
        assert!(all.windows(2).all(|pair| by_rank(&pair[0], &pair[1]) == Ordering::Less));
        for limit in [1, 3, 10, 499] {
            assert_eq!(index.search("bus", limit), all[..limit.min(all.len())]);
        }
    }

    #[test]
    fn candidates_are_ranked_by_text() {
        let tools = [("echo", "repeats a text"), ("sum", "adds two numbers")];
        let text = |tool: &(&str, &str)| format!("{} {}", tool.0, tool.1);
        assert_eq!(Ranker::rank(&tools, text, "add numbers"), [&tools[1]]);
        let scored = Ranker::rank_with_scores(&tools, text, "text echo");
        assert_eq!(scored.len(), 1);
        assert!(scored[0].1 > 0.0);
    }
}
