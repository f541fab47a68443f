//! Stop sequences, before the first of which a text ends.

/// Maximum number of stop sequences.
pub(super) const MAX_STOPS: usize = 4;

/// Passes text on up to the first stop sequence. Text that may be the beginning of one is held back.
#[derive(Debug)]
pub(super) struct StopFilter {
    stops: Vec<String>,
    held: String,
    is_stopped: bool,
}

impl StopFilter {
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), is_stopped: false }
    }

    /// Returns the text that can be passed on now.
    pub(super) fn push(&mut self, text: &str) -> String {
        if self.is_stopped {
            return String::new();
        }
        self.held.push_str(text);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = first {
            self.is_stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let rest = self.held.split_off(self.held.len() - self.possible_beginning());
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns the text that was held back, at the end.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the length of the longest end of the text that begins a stop sequence.
    fn possible_beginning(&self) -> usize {
        let begins = |stop: &String| {
            let starts = stop.char_indices().map(|(at, _)| at).skip(1).collect::<Vec<_>>();
            starts.into_iter().rev().find(|at| self.held.ends_with(&stop[..*at])).unwrap_or(0)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stops: &[&str], pieces: &[&str], expected: &str) {
        let mut filter = StopFilter::new(stops.iter().map(ToString::to_string).collect());
        let mut text: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        text.push_str(&filter.finish());
        assert_eq!(text, expected, "{stops:?} {pieces:?}");
    }

    #[test]
    fn text_ends_before_the_first_stop_sequence() {
        check(&[], &["a", "b"], "ab");
        check(&["END"], &["one END two"], "one ");
        check(&["END"], &["one E", "N", "D two", " three"], "one ");
        check(&["END"], &["one E", "N", "O"], "one ENO");
        check(&["END"], &["one EN"], "one EN");
        check(&["b", "ab"], &["xa", "b"], "x");
        check(&["aab"], &["aa", "ab"], "a");
        check(&["äö"], &["xä", "ä", "öy"], "xä");
    }

    #[test]
    fn text_that_cannot_begin_a_stop_sequence_is_passed_on_at_once() {
        let mut filter = StopFilter::new(vec!["END".to_owned()]);
        assert_eq!(filter.push("one EN"), "one ");
        assert_eq!(filter.push("x"), "ENx");
    }
}
