//! Regular expressions of RabbitMQ for binding patterns.
//!
//! RabbitMQ 4.3 refuses a permission whose expression has more than 1,024 bytes (seen with 4.3.6).
//! Names of one user share most of their segments, so common segments are written once.

/// The most bytes that RabbitMQ accepts in an expression of a permission.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = 1024;

/// A segment as encoded by [`key_segment`](crate::topology::key_segment). It excludes wildcards, so that the
/// right to bind one name is not a right to bind all names. RabbitMQ reads `\w` as ASCII.
const SEGMENT: &str = r"[\w%~-]+";

/// Returns an expression for the names that match `pattern`, without anchors.
pub(crate) fn expression(pattern: &str) -> String {
    pattern.split('.').map(segment).collect::<Vec<_>>().join("\\.")
}

/// Returns an expression that matches a whole name when one of the patterns does. Without patterns it
/// matches nothing but the empty name.
pub(crate) fn any_of<T: AsRef<str>>(patterns: impl IntoIterator<Item = T>) -> String {
    let mut root = Node::default();
    for pattern in patterns {
        root.insert(pattern.as_ref());
    }
    // `\z` rather than `$`, which also matches before a line break at the end.
    format!("\\A(?:{})\\z", root.alternatives())
}

fn segment(text: &str) -> String {
    if text == "*" { SEGMENT.to_owned() } else { text.chars().map(escaped).collect() }
}

fn escaped(character: char) -> String {
    let plain = character.is_alphanumeric() || matches!(character, '_' | '-' | '%' | '~');
    if plain { character.to_string() } else { format!("\\{character}") }
}

/// Possible continuations of a segment, in the order in which they were added.
#[derive(Default)]
struct Node {
    /// Set when a pattern ends here.
    ends: bool,
    children: Vec<(String, Node)>,
}

impl Node {
    fn insert(&mut self, pattern: &str) {
        let mut node = self;
        for text in pattern.split('.') {
            let known = node.children.iter().position(|(child, _)| child == text);
            let index = known.unwrap_or_else(|| {
                node.children.push((text.to_owned(), Self::default()));
                node.children.len() - 1
            });
            node = &mut node.children[index].1;
        }
        node.ends = true;
    }

    fn alternatives(&self) -> String {
        // Segments with the same continuation share it.
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for (text, node) in &self.children {
            let rest = node.rest();
            match groups.iter_mut().find(|(known, _)| *known == rest) {
                Some((_, segments)) => segments.push(segment(text)),
                None => groups.push((rest, vec![segment(text)])),
            }
        }
        let group = |(rest, segments): (String, Vec<String>)| match segments.as_slice() {
            [_, _, ..] if !rest.is_empty() => format!("(?:{}){rest}", segments.join("|")),
            _ => segments.join("|") + &rest,
        };
        groups.into_iter().map(group).collect::<Vec<_>>().join("|")
    }

    /// Returns what follows this node's segment.
    fn rest(&self) -> String {
        let alternatives = self.alternatives();
        match (self.children.len(), self.ends) {
            (0, _) => String::new(),
            (1, false) => format!("\\.{alternatives}"),
            (_, false) => format!("\\.(?:{alternatives})"),
            (1, true) => format!("(?:\\.{alternatives})?"),
            (_, true) => format!("(?:\\.(?:{alternatives}))?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::any_of;

    #[test]
    fn shared_segments_are_written_once() {
        for (patterns, expected) in [
            (&[][..], r"\A(?:)\z"),
            (&["rockbot"], r"\A(?:rockbot)\z"),
            (&["a.b", "a.c"], r"\A(?:a\.(?:b|c))\z"),
            (&["a", "a.b"], r"\A(?:a(?:\.b)?)\z"),
            (&["a.b.c", "a", "a.d"], r"\A(?:a(?:\.(?:b\.c|d))?)\z"),
            (&["a.*", "b+"], r"\A(?:a\.[\w%~-]+|b\+)\z"),
            (&["a.x.y", "b", "c.x.y"], r"\A(?:(?:a|c)\.x\.y|b)\z"),
            (&["a.b", "a.b"], r"\A(?:a\.b)\z"),
        ] {
            assert_eq!(any_of(patterns), expected, "{patterns:?}");
        }
    }
}
