//! Expansion of `${NAME}` placeholders from the environment.

/// An unset variable without a default, or an unclosed placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpandError {
    #[error("environment variable {0} is not set; set it, or write ${{{0}:-default}}")]
    Unset(String),
    #[error("`${{` without a closing `}}`")]
    Unclosed,
}

/// Replaces `${NAME}` and `${NAME:-default}`; `$${` yields a literal `${`. Values are not expanded
/// again.
pub(super) fn expand(
    text: &str,
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<String, ExpandError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            expanded.push_str(&rest[..at - 1]);
            expanded.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        expanded.push_str(&rest[..at]);
        let (inside, after) = rest[at + 2..].split_once('}').ok_or(ExpandError::Unclosed)?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        match (lookup(name), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => return Err(ExpandError::Unset(name.to_owned())),
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, ExpandError>) {
        let lookup = |name: &str| (name == "KEY").then(|| "v${KEY}".to_owned());
        assert_eq!(expand(text, &lookup), expected.map(str::to_owned), "{text}");
    }

    #[test]
    fn variables_are_replaced_once() {
        check("Bearer ${KEY}!", Ok("Bearer v${KEY}!"));
        check("${NONE:-a:-b}${KEY:-c}", Ok("a:-bv${KEY}"));
        check("plain $KEY {KEY} $", Ok("plain $KEY {KEY} $"));
        check("$${KEY}", Ok("${KEY}"));
        check("${NONE}", Err(ExpandError::Unset("NONE".to_owned())));
        check("${KEY", Err(ExpandError::Unclosed));
    }
}
