//! Suggestions for mistyped names.

/// Names are compared up to this length, in characters.
const MAX_CHARS: usize = 128;
/// Similarity from which a name is suggested, from 0 to 1.
const SIMILAR: f64 = 0.7;

/// Returns the name that is most similar to `typed`, if one is similar enough.
pub(crate) fn closest<N: AsRef<str>>(typed: &str, names: impl IntoIterator<Item = N>) -> Option<N> {
    if typed.chars().count() > MAX_CHARS {
        return None;
    }
    let scored = names.into_iter().filter(|name| name.as_ref().len() <= MAX_CHARS);
    let scored = scored.map(|name| (strsim::jaro_winkler(typed, name.as_ref()), name));
    let similar = scored.filter(|(score, _)| *score >= SIMILAR);
    similar.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["read_file", "write_file", "bash"];
        assert_eq!(closest("readfile", names), Some("read_file"));
        assert_eq!(closest("raed_file", names), Some("read_file"));
        assert_eq!(closest("kubernetes", names), None);
        assert_eq!(closest(&"read_file".repeat(20), names), None);
        assert_eq!(closest("bash", [] as [&str; 0]), None);
    }
}
