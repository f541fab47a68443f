//! Selection of operations by patterns.

use regex::{Regex, RegexBuilder};

use super::options::OperationFilter;

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 512;

/// Text that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// Ids: `*` matches any text.
    Id,
    /// Paths: `*` stays within a segment, `**` does not.
    Path,
}

/// Compiled patterns of operation ids.
#[derive(Debug, Default)]
pub(super) struct IdPatterns(Vec<Regex>);

impl IdPatterns {
    /// Compiles patterns. Those that are too long match nothing.
    pub(super) fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().filter_map(|pattern| compile(pattern, Text::Id)).collect())
    }

    pub(super) fn matches(&self, id: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(id))
    }
}

/// Properties of an operation that filters look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) id: &'a str,
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) tags: &'a [&'a str],
}

/// A compiled filter.
#[derive(Debug)]
pub(super) struct Selection {
    operations: Option<IdPatterns>,
    paths: Option<Vec<Regex>>,
    tags: Vec<String>,
    methods: Vec<String>,
}

impl Selection {
    pub(super) fn new(filter: &OperationFilter) -> Self {
        let given = |patterns: &[String]| !patterns.is_empty();
        let paths = filter.paths.iter().filter_map(|pattern| compile(pattern, Text::Path));
        Self {
            operations: given(&filter.operations).then(|| IdPatterns::new(&filter.operations)),
            paths: given(&filter.paths).then(|| paths.collect()),
            tags: filter.tags.clone(),
            methods: filter.methods.clone(),
        }
    }

    /// Returns `true` if the filter has no patterns.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_none()
            && self.paths.is_none()
            && self.tags.is_empty()
            && self.methods.is_empty()
    }

    /// Returns `true` if all lists of the filter match the operation.
    pub(super) fn matches(&self, candidate: Candidate<'_>) -> bool {
        let by_id = self.operations.as_ref().is_none_or(|ids| ids.matches(candidate.id));
        let by_path = self
            .paths
            .as_ref()
            .is_none_or(|paths| paths.iter().any(|path| path.is_match(candidate.path)));
        let by_tag = self.tags.is_empty()
            || self.tags.iter().any(|tag| candidate.tags.contains(&tag.as_str()));
        let by_method = self.methods.is_empty()
            || self.methods.iter().any(|method| method.eq_ignore_ascii_case(candidate.method));
        by_id && by_path && by_tag && by_method
    }
}

fn compile(pattern: &str, text: Text) -> Option<Regex> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    let escaped = regex::escape(pattern);
    let expression = match text {
        Text::Id => escaped.replace(r"\*", ".*"),
        Text::Path => escaped.replace(r"\*\*", ".*").replace(r"\*", "[^/]*"),
    };
    RegexBuilder::new(&format!("^{expression}$")).dot_matches_new_line(true).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate() -> Candidate<'static> {
        let tags = &["repos", "beta"];
        Candidate { id: "repos/get", path: "/repos/{owner}/{repo}", method: "get", tags }
    }

    #[track_caller]
    fn check(filter: &OperationFilter, expected: bool) {
        assert_eq!(Selection::new(filter).matches(candidate()), expected, "{filter:?}");
    }

    fn list(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
    }

    #[test]
    fn every_given_list_must_match() {
        let none = OperationFilter::default();
        check(&none, true);
        check(
            &OperationFilter { operations: list(&["issues/*", "repos/*"]), ..none.clone() },
            true,
        );
        check(&OperationFilter { operations: list(&["repos"]), ..none.clone() }, false);
        check(&OperationFilter { tags: list(&["beta"]), ..none.clone() }, true);
        check(&OperationFilter { methods: list(&["GET"]), ..none.clone() }, true);
        let both = OperationFilter { tags: list(&["beta"]), methods: list(&["post"]), ..none };
        check(&both, false);
    }

    #[test]
    fn path_pattern_stays_within_a_segment() {
        let paths = |pattern: &str| OperationFilter {
            paths: list(&[pattern]),
            ..OperationFilter::default()
        };
        check(&paths("/repos/**"), true);
        check(&paths("/repos/*/*"), true);
        check(&paths("/repos/*"), false);
        check(&paths("/repos/{owner}/{repo}"), true);
    }
}
