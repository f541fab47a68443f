//! Names, and keys and values of labels, as Kubernetes takes them.

/// The longest name of a label, and the longest value.
const LONGEST: usize = 63;

/// A name as RFC 1123 has it.
pub(crate) fn is_object_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(inside)
            && part.ends_with(inside)
            && part.chars().all(|c| inside(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

/// What is wrong with a key of a label or a taint: a name, after the name of a domain and `/` or alone.
pub(crate) fn key_problem(key: &str) -> Option<String> {
    let is_key = match key.split_once('/') {
        Some((domain, name)) => is_object_name(domain) && is_word(name),
        None => is_word(key),
    };
    (!is_key).then(|| {
        format!(
            "{key:?} is not a key: letters, digits, '-', '_' and '.', at most {LONGEST}, such as \
                 \"pool\" or \"example.org/pool\""
        )
    })
}

/// What is wrong with a value of a label or a taint.
pub(crate) fn value_problem(value: &str) -> Option<String> {
    (!value.is_empty() && !is_word(value)).then(|| {
        format!("{value:?} is not a value: letters, digits, '-', '_' and '.', at most {LONGEST}")
    })
}

fn is_word(word: &str) -> bool {
    let at_its_ends = |c: char| c.is_ascii_alphanumeric();
    word.len() <= LONGEST
        && word.starts_with(at_its_ends)
        && word.ends_with(at_its_ends)
        && word.chars().all(|c| at_its_ends(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_that_the_cluster_takes() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        let prefixed = format!("example.org/{longest}");
        for key in ["a", "A_b-c.1", "kubernetes.io/arch", "a.b/C", &longest, &prefixed] {
            assert_eq!(key_problem(key), None);
        }
        for key in [
            "", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "\u{e4}", "Up.org/a", "a..b/c",
            &longer,
        ] {
            assert!(key_problem(key).is_some(), "{key:?}");
        }
        for value in ["", "a", "1", "A_b-c.1", &longest] {
            assert_eq!(value_problem(value), None);
        }
        for value in ["-", ".a", "a/b", "a b", "\u{e4}", &longer] {
            assert!(value_problem(value).is_some(), "{value:?}");
        }
    }
}
