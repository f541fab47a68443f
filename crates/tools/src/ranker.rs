//! Which texts fit a query best: Okapi BM25, with a bonus for words that stand side by side.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
};

/// How fast a word that is repeated stops to count; Robertson's usual value.
pub const K1: f64 = 1.5;
/// How much a long text is held back, 0 to 1; the usual value, too.
pub const B: f64 = 0.75;
/// How much two words that stand side by side in the query, and so in a text, count: as a word of
/// their own, this many times.
pub const PHRASE_WEIGHT: f64 = 2.0;

/// An index of texts, made once and asked often.
///
/// A word is a run of letters and digits, in any case; names such as `getCurrentTime` are several. The
/// score of a text is the sum over the
/// different words of the query of `idf · tf · (K1 + 1) / (tf + K1 · (1 − B + B · length / average))`
/// with `idf = ln(1 + (N − n + 0.5) / (n + 0.5))`, and likewise over the pairs of words that stand
/// side by side in the query, each [`PHRASE_WEIGHT`] times.
#[derive(Debug, Clone, Default)]
pub struct Ranker {
    words: HashMap<Box<str>, u32>,
    /// By word.
    postings: Vec<Vec<Posting>>,
    pairs: HashMap<(u32, u32), Vec<Posting>>,
    /// By text: what its length takes from a word's weight.
    damping: Vec<f64>,
}

/// How often something is in a text.
#[derive(Debug, Clone, Copy)]
struct Posting {
    text: u32,
    times: u32,
}

/// A text that fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Which one, in the order in which they were given.
    pub text: usize,
    /// How well; greater than 0.
    pub score: f64,
}

impl Ranker {
    /// An index of these texts, at most 2³² of them.
    #[must_use]
    pub fn over<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut index = Self::default();
        let mut lengths = Vec::new();
        for (at, text) in (0_u32..).zip(texts) {
            let words: Vec<u32> = words(text.as_ref()).map(|word| index.number(word)).collect();
            for &word in &words {
                count(&mut index.postings[word as usize], at);
            }
            for pair in words.windows(2) {
                count(index.pairs.entry((pair[0], pair[1])).or_default(), at);
            }
            lengths.push(words.len());
        }
        let total: usize = lengths.iter().sum();
        let average = total as f64 / lengths.len().max(1) as f64;
        let damp = |length: usize| K1 * (1.0 - B + B * length as f64 / average.max(f64::EPSILON));
        index.damping = lengths.into_iter().map(damp).collect();
        index
    }

    fn number(&mut self, word: String) -> u32 {
        let next = u32::try_from(self.postings.len()).unwrap_or(u32::MAX);
        let number = *self.words.entry(word.into_boxed_str()).or_insert(next);
        if number == next {
            self.postings.push(Vec::new());
        }
        number
    }

    /// The `most` texts that fit best, the best one first; of equals, the one that was given first.
    /// Texts that have no word of the query are left out.
    #[must_use]
    pub fn search(&self, query: &str, most: usize) -> Vec<Ranked> {
        let asked: Vec<Option<u32>> =
            words(query).map(|word| self.words.get(word.as_str()).copied()).collect();
        let different: BTreeSet<u32> = asked.iter().flatten().copied().collect();
        let side_by_side = asked.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?)));
        let pairs: BTreeSet<(u32, u32)> = side_by_side.collect();
        let mut scores = vec![0.0; self.damping.len()];
        for word in different {
            self.add(&self.postings[word as usize], 1.0, &mut scores);
        }
        for pair in pairs {
            if let Some(postings) = self.pairs.get(&pair) {
                self.add(postings, PHRASE_WEIGHT, &mut scores);
            }
        }
        let fitting = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0);
        let mut found: Vec<_> = fitting.map(|(text, score)| Ranked { text, score }).collect();
        if most < found.len() {
            if let Some(last) = most.checked_sub(1) {
                found.select_nth_unstable_by(last, better);
            }
            found.truncate(most);
        }
        found.sort_unstable_by(better);
        found
    }

    fn add(&self, postings: &[Posting], weight: f64, scores: &mut [f64]) {
        let (all, with) = (self.damping.len() as f64, postings.len() as f64);
        let idf = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        for &Posting { text, times } in postings {
            let (text, times) = (text as usize, f64::from(times));
            scores[text] += weight * idf * times * (K1 + 1.0) / (times + self.damping[text]);
        }
    }

    /// Those of `candidates` that fit a query, the best one first.
    #[must_use]
    pub fn rank<'a, T>(
        candidates: &'a [T],
        text: impl Fn(&T) -> String,
        query: &str,
    ) -> Vec<&'a T> {
        Self::rank_with_scores(candidates, text, query).into_iter().map(|(one, _)| one).collect()
    }

    /// The same with their scores, which compare within one call only.
    #[must_use]
    pub fn rank_with_scores<'a, T>(
        candidates: &'a [T],
        text: impl Fn(&T) -> String,
        query: &str,
    ) -> Vec<(&'a T, f64)> {
        let found = Self::over(candidates.iter().map(text)).search(query, candidates.len());
        found.into_iter().map(|Ranked { text, score }| (&candidates[text], score)).collect()
    }
}

fn count(postings: &mut Vec<Posting>, text: u32) {
    match postings.last_mut() {
        Some(last) if last.text == text => last.times += 1,
        _ => postings.push(Posting { text, times: 1 }),
    }
}

fn better(one: &Ranked, other: &Ranked) -> Ordering {
    other.score.total_cmp(&one.score).then(one.text.cmp(&other.text))
}

pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty());
    runs.flat_map(humps).map(str::to_lowercase)
}

/// `getCurrentTime` as `get`, `Current` and `Time`.
fn humps(run: &str) -> impl Iterator<Item = &str> {
    let rises = |(at, pair): (usize, (char, char))| {
        (pair.0.is_lowercase() && pair.1.is_uppercase()).then_some(at)
    };
    let seconds = run.char_indices().skip(1).map(|(at, _)| at);
    let pairs = run.chars().zip(run.chars().skip(1));
    let starts = seconds.zip(pairs).filter_map(rises);
    let mut from = 0;
    starts.chain([run.len()]).map(move |to| &run[std::mem::replace(&mut from, to)..to])
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
        let index = Ranker::over(SERVICES);
        let found = index.search(query, SERVICES.len()).into_iter();
        found.map(|one| (one.text, format!("{:.4}", one.score))).collect()
    }

    fn golden(expected: &[(usize, &str)]) -> Vec<(usize, String)> {
        expected.iter().map(|(text, score)| (*text, (*score).to_owned())).collect()
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        // Worked out by hand from the formula: 5 texts of 11, 9, 9, 6 and 0 words.
        let one = |n: f64, tf: f64, length: f64| {
            let idf = (1.0 + (5.0 - n + 0.5) / (n + 0.5)).ln();
            idf * tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * length / 7.0))
        };
        let issue = format!("{:.4}", one(1.0, 1.0, 9.0));
        assert_eq!(ranked("issue"), golden(&[(2, &issue)]));
        let both = one(1.0, 1.0, 9.0) + one(3.0, 1.0, 9.0);
        let apart = format!("{both:.4}");
        assert_eq!(ranked("issue CREATE")[0], (2, apart));
        let phrase = one(2.0, 1.0, 9.0) + one(1.0, 1.0, 9.0) + 2.0 * one(1.0, 1.0, 9.0);
        assert_eq!(ranked("search code")[0], (2, format!("{phrase:.4}")));
    }

    #[test]
    fn what_fits_better_comes_first_and_what_does_not_fit_is_left_out() {
        let texts = |query| ranked(query).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        assert_eq!(texts("reschedule a meeting")[0], 0);
        assert_eq!(texts("search"), [1, 2]);
        assert_eq!(texts("forecast"), [3]);
        assert_eq!(texts("listPullRequests FindAFreeSlot"), [2, 0]);
        assert!(texts("aws").is_empty() && texts("").is_empty() && texts("!?").is_empty());
        let index = Ranker::over(SERVICES);
        assert_eq!(index.search("create a search", 1).len(), 1);
        assert!(index.search("create", 0).is_empty());
        assert!(Ranker::default().search("create", 5).is_empty());
    }

    #[test]
    fn candidates_of_any_kind_are_ranked() {
        let tools = [("echo", "repeats a text"), ("sum", "adds two numbers")];
        let text = |tool: &(&str, &str)| format!("{} {}", tool.0, tool.1);
        assert_eq!(Ranker::rank(&tools, text, "add numbers"), [&tools[1]]);
        let scored = Ranker::rank_with_scores(&tools, text, "text echo");
        assert_eq!(scored.len(), 1);
        assert!(scored[0].1 > 0.0);
    }
}
