//! Rules of a robots.txt, by RFC 9309.

/// Product token of this program.
const TOKEN: &str = "rockbot";
/// Maximum number of rules that are kept.
const MAX_RULES: usize = 10_000;
/// Maximum number of wildcards in a pattern. A pattern with more is ignored: matching takes a step for each
/// of them and each position of a path.
const MAX_WILDCARDS: usize = 20;

/// The rules of one site for this program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RobotsRules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    allows: bool,
    pattern: String,
}

impl RobotsRules {
    /// Reads a file. Lines that are not understood are skipped.
    pub(super) fn parse(text: &str) -> Self {
        let (mut own, mut general) = (Group::default(), Group::default());
        let mut in_own = false;
        let mut in_general = false;
        // Consecutive `user-agent` lines begin one group.
        let mut is_header = false;
        for line in text.trim_start_matches('\u{feff}').lines().flat_map(|line| line.split('\r')) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if !is_header {
                        (in_own, in_general, is_header) = (false, false, true);
                    }
                    in_own |= is_own(value);
                    in_general |= value == "*";
                    own.exists |= in_own;
                }
                "allow" | "disallow" => {
                    is_header = false;
                    let allows = key == "allow";
                    if in_own {
                        own.push(allows, value);
                    }
                    if in_general {
                        general.push(allows, value);
                    }
                }
                // Other records, such as sitemaps, belong to no group.
                _ => {}
            }
        }
        Self { rules: if own.exists { own.rules } else { general.rules } }
    }

    /// Returns whether a path with its query may be read. The longest matching rule decides; of two equally
    /// long ones, the one that allows.
    pub(super) fn allows(&self, path: &str) -> bool {
        if path == "/robots.txt" {
            return true;
        }
        let path = normalized(path);
        let matching = self.rules.iter().filter(|rule| matches(&rule.pattern, &path));
        matching.max_by_key(|rule| (rule.pattern.len(), rule.allows)).is_none_or(|rule| rule.allows)
    }
}

#[derive(Debug, Default)]
struct Group {
    exists: bool,
    rules: Vec<Rule>,
}

impl Group {
    fn push(&mut self, allows: bool, pattern: &str) {
        let is_usable = !pattern.is_empty() && pattern.matches('*').count() <= MAX_WILDCARDS;
        if is_usable && self.rules.len() < MAX_RULES {
            self.rules.push(Rule { allows, pattern: normalized(pattern) });
        }
    }
}

/// Returns whether a product token, possibly with a version, is that of this program.
fn is_own(value: &str) -> bool {
    let end = value.find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '-' | '_')));
    value[..end.unwrap_or(value.len())].eq_ignore_ascii_case(TOKEN)
}

/// Encodes and decodes characters so that equal paths are equal texts: characters outside of ASCII are
/// encoded, escapes are in upper case, and escapes of unreserved characters are decoded.
fn normalized(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut text = String::with_capacity(path.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escape =
            escape.filter(|_| *byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escape {
            Some(decoded) if decoded.is_ascii_alphanumeric() || b"-._~".contains(&decoded) => {
                text.push(char::from(decoded));
            }
            Some(other) => text.push_str(&format!("%{other:02X}")),
            None if byte.is_ascii() => text.push(char::from(*byte)),
            None => text.push_str(&format!("%{byte:02X}")),
        }
        at += if escape.is_some() { 3 } else { 1 };
    }
    text
}

/// Matches a pattern against the beginning of a path: `*` stands for any text, and `$` at the end for the
/// end of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_anchored) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return !is_anchored || rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    if is_anchored { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> RobotsRules {
        RobotsRules::parse(text)
    }

    #[test]
    fn group_of_own_token_is_used_alone() {
        let file = "User-Agent: examplebot\nDisallow: /\n\nUser-agent: *\nDisallow: /general\n\n\
                    User-Agent: RockBot/2.0\nUser-Agent: other\nAllow: /a/b\nDisallow: /a # comment\n\
                    Sitemap: https://example.com/s.xml\n\nuser-agent: rockbot\ndisallow: /c\n";
        let rules = rules(file);
        for (path, allowed) in
            [("/", true), ("/general", true), ("/a", false), ("/a/b/c", true), ("/c/x", false)]
        {
            assert_eq!(rules.allows(path), allowed, "{path}");
        }
        let similar = super::RobotsRules::parse("User-agent: rockbots\nDisallow: /");
        assert!(similar.allows("/"));
    }

    /// The examples of RFC 9309, 5.1: a crawler without a group of its own uses the general one.
    #[test]
    fn example_of_the_standard_is_read() {
        let rules = rules(
            "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\n\
             User-Agent: foobot\nDisallow:/\nAllow:/example/page.html\nAllow:/example/allowed.gif\n\n\
             User-Agent: barbot\nUser-Agent: bazbot\nDisallow: /example/page.html\n\n\
             User-Agent: quxbot\n\nEOF",
        );
        for (path, allowed) in [
            ("/example/page.html", false),
            ("/picture.gif", false),
            ("/picture.gif?x", true),
            ("/publications/a", true),
            ("/publications/a.gif", true),
            ("/robots.txt", true),
        ] {
            assert_eq!(rules.allows(path), allowed, "{path}");
        }
    }

    /// The example of RFC 9309, 5.2: the most specific rule wins.
    #[test]
    fn longest_match_wins() {
        let rules = rules(
            "User-Agent: rockbot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif",
        );
        assert!(!rules.allows("/example/page/disallowed.gif"));
        assert!(rules.allows("/example/page/allowed.gif"));
        let equal = super::RobotsRules::parse("user-agent:*\ndisallow:/p\nallow:/p");
        assert!(equal.allows("/page"));
    }

    /// The table of RFC 9309, 2.2.2.
    #[test]
    fn encodings_of_a_path_are_equal() {
        for (pattern, path) in [
            ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
            ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https://foo.bar"),
            ("/foo/bar/\u{30c4}", "/foo/bar/%E3%83%84"),
            ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
            ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ] {
            let rules = rules(&format!("user-agent: *\ndisallow: {pattern}"));
            assert!(!rules.allows(path), "{pattern}");
        }
        assert!(!matches("/a%2Fb", "/a/b"));
    }

    /// The table of RFC 9309, 2.2.3, and its combinations.
    #[test]
    fn special_characters_match() {
        for (pattern, path, expected) in [
            ("/this/*/exactly", "/this/is/exactly", true),
            ("/this/path/exactly$", "/this/path/exactly", true),
            ("/this/path/exactly$", "/this/path/exactly/not", false),
            ("/*.php$", "/a/b.php", true),
            ("/*.php$", "/a/b.php5", false),
            ("/a*b*c", "/a_b_b_c_d", true),
            ("/a*b*c", "/a_c_b", false),
            ("/fish*", "/fish", true),
            ("*", "/anything", true),
            ("/$", "/", true),
            ("/$", "/a", false),
            ("/a*a$", "/a", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn empty_and_foreign_files_allow_everything() {
        for file in ["", "<html>not found</html>", "Disallow: /", "user-agent: *\ndisallow:"] {
            assert!(rules(file).allows("/a"), "{file}");
        }
    }
}
