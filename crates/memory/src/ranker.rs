//! Which texts fit a query best: Okapi BM25, with a bonus for words that stand side by side.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, hash_map::Entry},
};

/// How fast a word that is repeated stops to count; Robertson's usual value.
pub const K1: f64 = 1.5;
/// How much a long text is held back, 0 to 1; the usual value, too.
pub const B: f64 = 0.75;
/// How much two words that stand side by side in the query, and so in a text, count: as a word of
/// their own, this many times.
pub const PHRASE_WEIGHT: f64 = 2.0;

/// An index of texts, asked often. Texts can be added and taken away between two questions.
///
/// A word is a run of letters and digits, in any case; names such as `getCurrentTime` are several. The
/// score of a text is the sum over the
/// different words of the query of `idf · tf · (K1 + 1) / (tf + K1 · (1 − B + B · length / average))`
/// with `idf = ln(1 + (N − n + 0.5) / (n + 0.5))`, and likewise over the pairs of words that stand
/// side by side in the query, each [`PHRASE_WEIGHT`] times.
#[derive(Debug, Clone, Default)]
pub struct Ranker {
    words: HashMap<Box<str>, u32>,
    /// By word, each in order of the texts.
    postings: Vec<Vec<Posting>>,
    pairs: HashMap<(u32, u32), Vec<Posting>>,
    /// By number; none where a text was taken away.
    texts: Vec<Option<Box<[u32]>>>,
    /// By number, in words: what of the texts a search needs.
    lengths: Vec<u32>,
    /// Numbers to be given again.
    free: Vec<u32>,
    /// Words of all texts together.
    total: u64,
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
    /// Its number: which one in the order in which they were given, or what [`Ranker::insert`] said.
    pub text: usize,
    /// How well; greater than 0.
    pub score: f64,
}

impl Ranker {
    /// An index of these texts, at most 2³² of them, numbered from 0.
    #[must_use]
    pub fn over<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut index = Self::default();
        for text in texts {
            index.insert(text.as_ref());
        }
        index
    }

    /// Adds a text and returns its number, which may be that of one that was taken away.
    pub fn insert(&mut self, text: &str) -> usize {
        let words: Box<[u32]> = words(text).map(|word| self.number(word)).collect();
        let at = self.free.pop().unwrap_or_else(|| {
            self.texts.push(None);
            self.lengths.push(0);
            number_of(self.texts.len() - 1)
        });
        for &word in &words {
            count(&mut self.postings[word as usize], at);
        }
        for pair in words.windows(2) {
            count(self.pairs.entry((pair[0], pair[1])).or_default(), at);
        }
        self.total += words.len() as u64;
        self.lengths[at as usize] = number_of(words.len());
        self.texts[at as usize] = Some(words);
        at as usize
    }

    /// Takes a text away. Whether it was there.
    pub fn remove(&mut self, text: usize) -> bool {
        let Some(words) = self.texts.get_mut(text).and_then(Option::take) else { return false };
        let at = number_of(text);
        for &word in &words {
            forget(&mut self.postings[word as usize], at);
        }
        for pair in words.windows(2) {
            if let Entry::Occupied(mut postings) = self.pairs.entry((pair[0], pair[1])) {
                forget(postings.get_mut(), at);
                if postings.get().is_empty() {
                    postings.remove();
                }
            }
        }
        self.total -= words.len() as u64;
        self.lengths[text] = 0;
        self.free.push(at);
        true
    }

    /// How many texts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len() - self.free.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn number(&mut self, word: String) -> u32 {
        let next = number_of(self.postings.len());
        let number = *self.words.entry(word.into_boxed_str()).or_insert(next);
        if number == next {
            self.postings.push(Vec::new());
        }
        number
    }

    /// The `most` texts that fit best, the best one first; of equals, the one with the smaller number.
    /// Texts that have no word of the query are left out.
    #[must_use]
    pub fn search(&self, query: &str, most: usize) -> Vec<Ranked> {
        let asked: Vec<Option<u32>> =
            words(query).map(|word| self.words.get(word.as_str()).copied()).collect();
        let different: BTreeSet<u32> = asked.iter().flatten().copied().collect();
        let side_by_side = asked.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?)));
        let pairs: BTreeSet<(u32, u32)> = side_by_side.collect();
        let mut scores = vec![0.0; self.texts.len()];
        for word in different {
            self.add(&self.postings[word as usize], 1.0, &mut scores);
        }
        for pair in pairs {
            if let Some(postings) = self.pairs.get(&pair) {
                self.add(postings, PHRASE_WEIGHT, &mut scores);
            }
        }
        let mut best = Best::of(most);
        for (text, &score) in scores.iter().enumerate() {
            best.consider(Ranked { text, score });
        }
        best.in_order()
    }

    fn add(&self, postings: &[Posting], weight: f64, scores: &mut [f64]) {
        let (all, with) = (self.len() as f64, postings.len() as f64);
        let idf = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        let factor = weight * idf * (K1 + 1.0);
        let average = (self.total as f64 / all.max(1.0)).max(f64::EPSILON);
        let (fixed, for_a_word) = (K1 * (1.0 - B), K1 * B / average);
        for &Posting { text, times } in postings {
            let (text, times) = (text as usize, f64::from(times));
            let damping = fixed + for_a_word * f64::from(self.lengths[text]);
            scores[text] += factor * times / (times + damping);
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

/// The best so far.
struct Best {
    most: usize,
    /// At most twice as many.
    found: Vec<Ranked>,
    /// What a score must exceed to be one of them: of equals the first is better, and comes first.
    floor: f64,
}

impl Best {
    fn of(most: usize) -> Self {
        let floor = if most == 0 { f64::INFINITY } else { 0.0 };
        Self { most, found: Vec::new(), floor }
    }

    fn consider(&mut self, one: Ranked) {
        if one.score <= self.floor {
            return;
        }
        self.found.push(one);
        if self.found.len() >= self.most.saturating_mul(2) {
            let (_, last, _) = self.found.select_nth_unstable_by(self.most - 1, better);
            self.floor = last.score;
            self.found.truncate(self.most);
        }
    }

    fn in_order(mut self) -> Vec<Ranked> {
        self.found.sort_unstable_by(better);
        self.found.truncate(self.most);
        self.found
    }
}

/// A number of a word, a text or a length. There is no room for 2³² of any.
fn number_of(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn count(postings: &mut Vec<Posting>, text: u32) {
    match postings.last_mut() {
        Some(last) if last.text == text => last.times += 1,
        Some(last) if last.text > text => {
            match postings.binary_search_by_key(&text, |posting| posting.text) {
                Ok(at) => postings[at].times += 1,
                Err(at) => postings.insert(at, Posting { text, times: 1 }),
            }
        }
        _ => postings.push(Posting { text, times: 1 }),
    }
}

fn forget(postings: &mut Vec<Posting>, text: u32) {
    if let Ok(at) = postings.binary_search_by_key(&text, |posting| posting.text) {
        postings.remove(at);
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
    fn adding_and_taking_away_leaves_what_a_fresh_index_of_the_same_texts_has() {
        let mut index =
            Ranker::over(["lost: create an issue, search code", SERVICES[0], "lost too"]);
        assert!(index.remove(0) && index.remove(2) && !index.remove(2) && !index.remove(9));
        assert_eq!(index.len(), 1);
        let mut numbers = vec![(1, 0)];
        for (at, text) in SERVICES.iter().enumerate().skip(1) {
            numbers.push((index.insert(text), at));
        }
        assert!(numbers[1].0 == 2 && numbers[2].0 == 0, "numbers are given again: {numbers:?}");
        let fresh = Ranker::over(SERVICES);
        let (mut was, mut is) = (Vec::new(), Vec::new());
        for query in ["search code", "create a lead", "meeting", "lost", "the"] {
            let found = index.search(query, 9).into_iter();
            let original = |hit: Ranked| numbers.iter().find(|one| one.0 == hit.text).unwrap().1;
            is.push(found.map(|hit| (original(hit), hit.score.to_bits())).collect::<BTreeSet<_>>());
            let found = fresh.search(query, 9).into_iter();
            was.push(found.map(|hit| (hit.text, hit.score.to_bits())).collect::<BTreeSet<_>>());
        }
        assert_eq!(is, was);
    }

    #[test]
    fn the_best_of_many_are_those_of_a_full_sort() {
        let texts: Vec<_> =
            (0..500).map(|at| "bus ".repeat(at % 7) + &"filler ".repeat(at % 11)).collect();
        let index = Ranker::over(&texts);
        let all = index.search("bus", texts.len());
        assert!(all.windows(2).all(|pair| better(&pair[0], &pair[1]) == Ordering::Less));
        for most in [1, 3, 10, 499] {
            assert_eq!(index.search("bus", most), all[..most.min(all.len())]);
        }
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
