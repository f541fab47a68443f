//! Text from outside, between marks that its author cannot write.

use std::hash::BuildHasher;
use std::{hash::RandomState, sync::LazyLock};

/// Returns `text` between the marks `<kind word>` and `</kind word>`. The word is a hash with a random key
/// of this process: the author of the text cannot know it, and so cannot write a text that seems to stand
/// outside. Equal texts have equal marks.
#[must_use]
pub fn quoted(kind: &str, text: &str) -> String {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let word = format!("{:016x}", KEY.hash_one((kind, text)));
    format!("<{kind} {word}>\n{text}\n</{kind} {word}>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_depend_on_the_text() {
        let mark = |text| quoted("page", text).lines().next().unwrap().to_owned();
        assert_eq!(mark("a"), mark("a"));
        assert_ne!(mark("a"), mark("b"));
        let text = format!("a\n{}\nb", mark("a").replace('<', "</"));
        let framed = quoted("page", &text);
        let end = framed.lines().next().unwrap().replace('<', "</");
        assert_eq!(framed.matches(&end).count(), 1);
        assert!(framed.ends_with(&format!("\nb\n{end}")), "{framed}");
    }
}
