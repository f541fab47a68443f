//! Kubernetes names, label keys and label values.

/// The longest label name or value.
const MAX_LENGTH: usize = 63;

/// Returns whether the text is a name as in RFC 1123.
pub(crate) fn is_object_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(inside)
            && part.ends_with(inside)
            && part.chars().all(|c| inside(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

/// Validates the key of a label or a taint: a name, optionally after a domain and `/`.
pub(crate) fn key_error(key: &str) -> Option<String> {
    let is_key = match key.split_once('/') {
        Some((domain, name)) => is_object_name(domain) && is_label_text(name),
        None => is_label_text(key),
    };
    (!is_key).then(|| {
        format!(
            "{key:?} is not a key: letters, digits, '-', '_' and '.', at most {MAX_LENGTH}, such as \
                 \"pool\" or \"example.org/pool\""
        )
    })
}

/// Validates the value of a label or a taint.
pub(crate) fn value_error(value: &str) -> Option<String> {
    (!value.is_empty() && !is_label_text(value)).then(|| {
        format!("{value:?} is not a value: letters, digits, '-', '_' and '.', at most {MAX_LENGTH}")
    })
}

fn is_label_text(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.len() <= MAX_LENGTH
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_follow_kubernetes_rules() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        let prefixed = format!("example.org/{longest}");
        for key in ["a", "A_b-c.1", "kubernetes.io/arch", "a.b/C", &longest, &prefixed] {
            assert_eq!(key_error(key), None);
        }
        for key in [
            "", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "\u{e4}", "Up.org/a", "a..b/c",
            &longer,
        ] {
            assert!(key_error(key).is_some(), "{key:?}");
        }
        for value in ["", "a", "1", "A_b-c.1", &longest] {
            assert_eq!(value_error(value), None);
        }
        for value in ["-", ".a", "a/b", "a b", "\u{e4}", &longer] {
            assert!(value_error(value).is_some(), "{value:?}");
        }
    }
}
