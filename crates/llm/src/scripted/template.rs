//! Expansion of `{{result.NAME}}` in scripted texts.

const OPEN: &str = "{{result.";
const CLOSE: &str = "}}";

/// The longest result that is inserted, in characters.
const MAX_RESULT_CHARS: usize = 2000;

/// A tool result for templates.
pub(super) struct NamedResult<'a> {
    pub(super) tool: &'a str,
    pub(super) content: &'a str,
}

/// Validates the placeholders of a text.
pub(super) fn validate(text: &str) -> Result<(), String> {
    expand_with(text, |_| Ok("")).map(drop)
}

/// Replaces placeholders with results. Results are not expanded again.
pub(super) fn expand(text: &str, results: &[NamedResult<'_>]) -> Result<String, String> {
    expand_with(text, |key| {
        let found = match key.parse::<usize>() {
            Ok(index) => results.get(index),
            Err(_) => results.iter().rfind(|result| result.tool == key),
        };
        found.map(|result| result.content).ok_or_else(|| {
            let tools: Vec<_> = results.iter().map(|result| result.tool).collect();
            format!("no result {key:?}; there are {}: {}", tools.len(), tools.join(", "))
        })
    })
}

fn expand_with<'r>(
    text: &str,
    result: impl Fn(&str) -> Result<&'r str, String>,
) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let Some((key, after)) = after.split_once(CLOSE) else {
            return Err(format!("{OPEN} without {CLOSE}"));
        };
        expanded.push_str(before);
        push_shortened(&mut expanded, result(key.trim())?.trim_end());
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn push_shortened(text: &mut String, result: &str) {
    match result.char_indices().nth(MAX_RESULT_CHARS) {
        Some((cut, _)) => {
            text.push_str(&result[..cut]);
            text.push('…');
        }
        None => text.push_str(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_by_name_and_index() {
        let results = [
            NamedResult { tool: "read", content: "first\n" },
            NamedResult { tool: "bash", content: "{{result.0}}" },
            NamedResult { tool: "read", content: "second" },
        ];
        let expand = |text| expand(text, &results);
        assert_eq!(
            expand("<{{result.read}}|{{ result.0 }}|{{result.0}}>").unwrap(),
            "<second|{{ result.0 }}|first>"
        );
        assert_eq!(expand("{{result.bash}}").unwrap(), "{{result.0}}", "not expanded again");
        assert_eq!(expand("no {{other}}").unwrap(), "no {{other}}");
        assert!(expand("{{result.search}}").unwrap_err().contains("\"search\""));
        assert!(expand("{{result.3}}").is_err());
        assert!(validate("{{result.x").is_err());
    }

    #[test]
    fn long_results_are_cut_at_character_boundaries() {
        let content = "ü".repeat(3000);
        let results = [NamedResult { tool: "read", content: &content }];
        let text = expand("{{result.read}}", &results).unwrap();
        assert_eq!(text.chars().count(), 2001);
    }
}
