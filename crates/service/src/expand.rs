//! Expansion of `${NAME}` placeholders in configuration files.

/// An unset variable without a default, or an unclosed placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The variable has neither a value nor a default.
    #[error("environment variable {0} is not set; set it, or write ${{{0}:-default}}")]
    Unset(String),
    /// A placeholder is not closed.
    #[error("`${{` without a closing `}}`")]
    Unclosed,
}

/// A part of an expanded text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text and expanded variables.
    Text(String),
    /// The inside of a placeholder that was left alone: `parameters.city` of `${parameters.city}`.
    Placeholder(String),
}

/// Replaces `${NAME}` and `${NAME:-default}` with the values of `lookup`, usually environment variables;
/// `$${` yields a literal `${`. Values are not expanded again.
///
/// # Errors
/// See [`ExpandError`].
pub fn expand(text: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let mut expanded = String::with_capacity(text.len());
    for piece in expand_except(text, |_| false, lookup)? {
        if let Piece::Text(text) = piece {
            expanded.push_str(&text);
        }
    }
    Ok(expanded)
}

/// Expands like [`expand`], except for the placeholders whose inside `is_kept` accepts, for example
/// `parameters.city`. A value that looks like such a placeholder stays text.
///
/// Adjacent texts are one piece, and no text is empty.
///
/// # Errors
/// See [`ExpandError`].
pub fn expand_except(
    text: &str,
    is_kept: impl Fn(&str) -> bool,
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<Vec<Piece>, ExpandError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            literal.push_str(&rest[..at - 1]);
            literal.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        literal.push_str(&rest[..at]);
        let (inside, after) = rest[at + 2..].split_once('}').ok_or(ExpandError::Unclosed)?;
        rest = after;
        if is_kept(inside) {
            push_text(&mut pieces, &mut literal);
            pieces.push(Piece::Placeholder(inside.to_owned()));
        } else {
            literal.push_str(&value(inside, lookup)?);
        }
    }
    literal.push_str(rest);
    push_text(&mut pieces, &mut literal);
    Ok(pieces)
}

fn value(inside: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    lookup(name)
        .or_else(|| default.map(str::to_owned))
        .ok_or_else(|| ExpandError::Unset(name.to_owned()))
}

fn push_text(pieces: &mut Vec<Piece>, literal: &mut String) {
    if !literal.is_empty() {
        pieces.push(Piece::Text(std::mem::take(literal)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        (name == "KEY").then(|| "v${KEY}${parameters.x}".to_owned())
    }

    #[track_caller]
    fn check(text: &str, expected: Result<&str, ExpandError>) {
        assert_eq!(expand(text, &lookup), expected.map(str::to_owned), "{text}");
    }

    #[test]
    fn variables_are_replaced_once() {
        check("Bearer ${KEY}!", Ok("Bearer v${KEY}${parameters.x}!"));
        check("${NONE:-a:-b}${KEY:-c}", Ok("a:-bv${KEY}${parameters.x}"));
        check("plain $KEY {KEY} $", Ok("plain $KEY {KEY} $"));
        check("$${KEY}", Ok("${KEY}"));
        check("${NONE}", Err(ExpandError::Unset("NONE".to_owned())));
        check("${KEY", Err(ExpandError::Unclosed));
    }

    #[test]
    fn kept_placeholders_are_separate_pieces() {
        let expand =
            |text| expand_except(text, |inside| inside.starts_with("parameters."), &lookup);
        let text = |text: &str| Piece::Text(text.to_owned());
        let kept = |inside: &str| Piece::Placeholder(inside.to_owned());
        assert_eq!(
            expand("/${NONE:-v1}/${parameters.a}${parameters.b}$${parameters.c}"),
            Ok(vec![
                text("/v1/"),
                kept("parameters.a"),
                kept("parameters.b"),
                text("${parameters.c}")
            ])
        );
        // A value never becomes a placeholder.
        assert_eq!(expand("${KEY}"), Ok(vec![text("v${KEY}${parameters.x}")]));
        assert_eq!(expand(""), Ok(Vec::new()));
        assert_eq!(expand("${parameters.a"), Err(ExpandError::Unclosed));
    }
}
