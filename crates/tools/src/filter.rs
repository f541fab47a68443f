//! Tool filters of agent definitions.

use serde::Deserialize;

/// The tools that an agent may use, by name. In a pattern `*` matches any text. `deny` takes
/// precedence over `allow`. By default every tool is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFilter {
    /// Patterns of allowed tools. Default: `["*"]`; an empty list allows nothing.
    pub allow: Vec<String>,
    /// Patterns of denied tools. Default: none.
    pub deny: Vec<String>,
}

impl Default for ToolFilter {
    fn default() -> Self {
        Self { allow: vec!["*".to_owned()], deny: Vec::new() }
    }
}

impl ToolFilter {
    /// Returns `true` if the tool may be used.
    #[must_use]
    pub fn permits(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        any(&self.allow) && !any(&self.deny)
    }
}

/// Returns `true` if `name` matches `pattern`, where `*` matches any text.
///
/// It backtracks only to the last `*`, so that many of them cannot take exponential time.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at_pattern, mut at_name) = (0, 0);
    let mut backtrack: Option<(usize, usize)> = None;
    while at_name < name.len() {
        match pattern.get(at_pattern) {
            Some(b'*') => {
                backtrack = Some((at_pattern, at_name));
                at_pattern += 1;
            }
            Some(byte) if *byte == name[at_name] => {
                at_pattern += 1;
                at_name += 1;
            }
            _ => {
                let Some((star, consumed)) = backtrack else { return false };
                backtrack = Some((star, consumed + 1));
                at_pattern = star + 1;
                at_name = consumed + 1;
            }
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, name, expected) in [
            ("*", "read_file", true),
            ("read_*", "read_file", true),
            ("read_*", "read_", true),
            ("*_file", "read_file", true),
            ("r*d*e", "read_file", true),
            ("read", "read_file", false),
            ("*_dir", "read_file", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} ~ {name}");
        }
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39).replace('a', "ab")));
    }

    #[test]
    fn denied_tool_is_not_permitted() {
        let filter = ToolFilter { allow: vec!["*".into()], deny: vec!["bash".into()] };
        assert!(filter.permits("read_file"));
        assert!(!filter.permits("bash"));
        assert!(!ToolFilter { allow: Vec::new(), deny: Vec::new() }.permits("read_file"));
    }
}
