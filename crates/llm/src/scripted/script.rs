//! Turns of a script and their TOML format.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{ScriptError, template};

/// One answer of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedTurn {
    /// Starts a scene: the last user message must contain this text, case-insensitively.
    pub when: Option<String>,
    /// The text. `{{result.NAME}}` stands for the latest result of that tool since the user message,
    /// `{{result.0}}` for the first result; each is cut at 2000 characters.
    pub text: String,
    /// Parallel tool calls.
    #[serde(rename = "call")]
    pub calls: Vec<ScriptedCall>,
    /// Streams text and arguments in pieces of this many characters. Default: text word by word, and the
    /// arguments of a call in one piece.
    pub chunk: Option<usize>,
    /// Fails instead of answering, or after the text for `interrupted`.
    pub fail: Option<ScriptedFailure>,
}

/// One call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool.
    pub name: String,
    /// JSON, or any other text, since a model may write invalid JSON. In TOML a table, or a string that is
    /// used verbatim.
    #[serde(default = "no_arguments", deserialize_with = "table_or_text")]
    pub arguments: String,
}

/// Failures of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedFailure {
    /// [`ChatError::Unauthorized`](crate::ChatError::Unauthorized)
    Unauthorized,
    /// [`ChatError::ModelNotFound`](crate::ChatError::ModelNotFound)
    ModelNotFound,
    /// [`ChatError::RateLimited`](crate::ChatError::RateLimited)
    RateLimited,
    /// [`ChatError::ContextOverflow`](crate::ChatError::ContextOverflow)
    ContextOverflow,
    /// [`ChatError::Rejected`](crate::ChatError::Rejected)
    Rejected,
    /// [`ChatError::Unreachable`](crate::ChatError::Unreachable)
    Unreachable,
    /// [`ChatError::TimedOut`](crate::ChatError::TimedOut)
    TimedOut,
    /// [`ChatError::Interrupted`](crate::ChatError::Interrupted), after the text.
    Interrupted,
    /// [`ChatError::Malformed`](crate::ChatError::Malformed)
    Malformed,
}

impl ScriptedTurn {
    /// Creates a turn with a text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a failing turn.
    #[must_use]
    pub fn failing(fail: ScriptedFailure) -> Self {
        Self { fail: Some(fail), ..Self::default() }
    }

    /// Adds a call.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "callers write json!({..}) in place")]
    pub fn call(mut self, name: impl Into<String>, arguments: Value) -> Self {
        self.calls.push(ScriptedCall { name: name.into(), arguments: argument_text(&arguments) });
        self
    }

    /// Makes the turn the start of a scene.
    #[must_use]
    pub fn when(mut self, text: impl Into<String>) -> Self {
        self.when = Some(text.into());
        self
    }

    /// Returns the first invalid field and the reason.
    fn invalid_field(&self) -> Option<String> {
        if self.when.as_ref().is_some_and(|when| when.trim().is_empty()) {
            return Some("when: is empty; leave it out for any message".to_owned());
        }
        if self.chunk == Some(0) {
            return Some("chunk: must be at least 1".to_owned());
        }
        if self.calls.iter().any(|call| call.name.trim().is_empty()) {
            return Some("call.name: is empty".to_owned());
        }
        if self.text.is_empty() && self.calls.is_empty() && self.fail.is_none() {
            return Some("is empty; add a text, a [[turn.call]] or a fail".to_owned());
        }
        template::validate(&self.text).err().map(|problem| format!("text: {problem}"))
    }
}

/// Parses turns one by one, so that an error can name its turn.
pub(super) fn parse(script: &str, text: &str) -> Result<Vec<ScriptedTurn>, ScriptError> {
    let unreadable =
        |problem: String| ScriptError::Unreadable { script: script.to_owned(), problem };
    let mut file: toml::Table =
        toml::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    let turns = match file.remove("turn") {
        Some(toml::Value::Array(turns)) if !turns.is_empty() => turns,
        _ => return Err(unreadable("it has no [[turn]]".to_owned())),
    };
    if let Some(key) = file.keys().next() {
        return Err(unreadable(format!("unknown key {key:?}; only [[turn]] is known")));
    }
    let read = |(index, turn): (usize, toml::Value)| {
        let turn: Result<ScriptedTurn, _> = turn.try_into();
        let turn = turn.map_err(|error: toml::de::Error| error.to_string());
        turn.and_then(|turn| turn.invalid_field().map_or(Ok(turn), Err)).map_err(|problem| {
            let problem = problem.split_whitespace().collect::<Vec<_>>().join(" ");
            ScriptError::Turn { script: script.to_owned(), turn: index + 1, problem }
        })
    };
    turns.into_iter().enumerate().map(read).collect()
}

fn no_arguments() -> String {
    "{}".to_owned()
}

fn table_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        arguments @ (Value::Object(_) | Value::String(_)) => Ok(argument_text(&arguments)),
        _ => Err(serde::de::Error::custom("arguments must be a table or a string")),
    }
}

fn argument_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn script_is_parsed() {
        let turns = parse(
            "s",
            r#"
            [[turn]]
            when = "bus"
            text = "Let me see."
            chunk = 3
            [[turn.call]]
            name = "search"
            arguments = { pattern = "bus", limit = 3 }
            [[turn.call]]
            name = "broken"
            arguments = "{not json"
            [[turn.call]]
            name = "list_files"
            [[turn]]
            fail = "rate_limited"
            "#,
        )
        .unwrap();
        let mut first = ScriptedTurn::text("Let me see.")
            .when("bus")
            .call("search", json!({"pattern": "bus", "limit": 3}))
            .call("broken", json!("{not json"))
            .call("list_files", json!({}));
        first.chunk = Some(3);
        assert_eq!(turns, [first, ScriptedTurn::failing(ScriptedFailure::RateLimited)]);
    }

    #[test]
    fn errors_name_script_turn_and_key() {
        let good = "[[turn]]\ntext = 'x'\n[[turn]]\n";
        for (bad, key) in [
            ("txt = 'x'", "txt"),
            ("text = 3", "text"),
            ("text = 'x'\nchunk = 0", "chunk"),
            ("fail = 'explode'", "fail"),
            ("text = '{{result.'", "text"),
            ("text = 'x'\nwhen = ''", "when"),
            ("[[turn.call]]\nname = 'a'\narguments = 3", "arguments"),
            ("[[turn.call]]\narguments = {}", "name"),
            ("", "is empty"),
        ] {
            let error = parse("demo.toml", &format!("{good}{bad}")).unwrap_err().to_string();
            assert!(error.starts_with("script demo.toml, turn 2: "), "{error}");
            assert!(error.contains(key), "{key}: {error}");
        }
        for bad in ["", "turn = 3", "x = ", "[[turn]]\ntext = 'x'\n[other]"] {
            let error = parse("demo.toml", bad).unwrap_err();
            assert!(matches!(error, ScriptError::Unreadable { .. }), "{error}");
        }
    }
}
