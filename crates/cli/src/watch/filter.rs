//! Which calls are shown.

use rockbot_contracts::ToolErrorCode;

use super::calls::{Call, State};

/// States that stand for several.
const GROUPS: [&str; 3] = ["live", "ended", "failed"];

/// States of a call besides the codes of errors.
const STATES: [&str; 6] = ["asked", "running", "cancelling", "unanswered", "ok", "tool_error"];

/// What a call must be like. Of the same kind one must fit, and of each kind that is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    agents: Vec<String>,
    tools: Vec<String>,
    states: Vec<String>,
    /// Texts that must be somewhere in the row, all of them.
    words: Vec<String>,
}

impl Filter {
    /// The filter of the options of the command.
    pub(super) fn new(agents: &[String], tools: &[String], states: &[String]) -> Self {
        let lower = |texts: &[String]| texts.iter().map(|text| text.to_lowercase()).collect();
        Self {
            agents: lower(agents),
            tools: lower(tools),
            states: lower(states),
            words: Vec::new(),
        }
    }

    /// The filter of a line that was typed: `agent:TEXT`, `tool:TEXT`, `state:STATE`, or any text.
    pub(super) fn typed(line: &str) -> Self {
        let mut filter = Self::default();
        for word in line.split_whitespace() {
            let word = word.to_lowercase();
            let (texts, text) = match word.split_once(':') {
                Some(("agent", text)) => (&mut filter.agents, text),
                Some(("tool", text)) => (&mut filter.tools, text),
                Some(("state", text)) => (&mut filter.states, text),
                _ => (&mut filter.words, word.as_str()),
            };
            // What is not yet typed to its end.
            if !text.is_empty() {
                texts.push(text.to_owned());
            }
        }
        filter
    }

    /// The line that would be typed for it.
    pub(super) fn line(&self) -> String {
        let named = [("agent:", &self.agents), ("tool:", &self.tools), ("state:", &self.states)];
        let named = named.into_iter().chain([("", &self.words)]);
        let words = named.flat_map(|(kind, texts)| texts.iter().map(move |t| format!("{kind}{t}")));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The first state that no call can have.
    pub(super) fn unknown_state(&self) -> Option<&str> {
        let known = |state: &str| {
            let codes = ToolErrorCode::KNOWN;
            STATES.contains(&state)
                || GROUPS.contains(&state)
                || codes.iter().any(|code| code.as_str() == state)
        };
        self.states.iter().map(String::as_str).find(|state| !known(state))
    }

    /// The words for states.
    pub(super) fn states() -> String {
        let codes = ToolErrorCode::KNOWN;
        let words = STATES.into_iter().chain(codes.iter().map(ToolErrorCode::as_str)).chain(GROUPS);
        words.collect::<Vec<_>>().join(", ")
    }

    /// Whether the call is to be shown.
    pub(super) fn fits(&self, call: &Call) -> bool {
        let holds = |whole: Option<&str>, text: &String| {
            whole.is_some_and(|whole| whole.to_lowercase().contains(text))
        };
        let any = |texts: &[String], test: &dyn Fn(&String) -> bool| {
            texts.is_empty() || texts.iter().any(test)
        };
        let (agent, tool) = (call.agent.as_deref(), call.tool.as_deref());
        let state = call.state();
        any(&self.agents, &|text| holds(agent, text))
            && any(&self.tools, &|text| holds(tool, text) || holds(call.server(), text))
            && any(&self.states, &|text| is(&state, text))
            && self.words.iter().all(|text| {
                let parts = [agent, tool, call.server(), call.worker(), Some(state.word())];
                parts.into_iter().any(|part| holds(part, text))
                    || call.id.as_str().to_lowercase().contains(text)
            })
    }
}

fn is(state: &State<'_>, text: &str) -> bool {
    match text {
        "live" => state.is_live(),
        "ended" => !state.is_live(),
        "failed" => state.is_failed(),
        word => state.word() == word,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::watch::{
        calls::{
            Calls,
            tests::{answered, asked, progressed},
        },
        heard::Status,
    };

    #[track_caller]
    fn check(filter: &str, expected: [bool; 3]) {
        let filter = Filter::typed(filter);
        let mut calls = Calls::default();
        for heard in [
            asked("waits"),
            asked("runs"),
            asked("fails"),
            progressed("runs", 1),
            answered("fails", Status::ToolError),
        ] {
            calls.hear(heard, Duration::ZERO);
        }
        let mut fit = calls.newest_first().map(|call| filter.fits(call)).collect::<Vec<_>>();
        fit.reverse();
        assert_eq!(fit, expected, "{filter:?}");
    }

    #[test]
    fn what_is_typed_says_what_is_shown() {
        check("", [true; 3]);
        check("agent:ASSIST", [true; 3]);
        check("agent:other", [false; 3]);
        check("agent:other agent:assistant", [true; 3]);
        check("tool:read state:asked", [true, false, false]);
        check("state:running", [false, true, false]);
        check("state:live", [true, true, false]);
        check("state:ended", [false, false, true]);
        check("state:failed", [false, false, true]);
        check("state:tool_error state:asked", [true, false, true]);
        check("h1", [false, true, true]);
        check("h1 runs", [false, true, false]);
        check("state:", [true; 3]);
    }

    #[test]
    fn options_are_the_line_that_would_be_typed() {
        let texts = |text: &str| vec![text.to_owned()];
        let filter = Filter::new(&texts("Assistant"), &texts("bash"), &texts("failed"));
        assert_eq!(filter.line(), "agent:assistant tool:bash state:failed");
        assert_eq!(Filter::typed(&filter.line()), filter);
    }

    #[test]
    fn a_state_that_no_call_has_is_a_mistake() {
        assert_eq!(Filter::typed("state:faild").unknown_state(), Some("faild"));
        assert_eq!(Filter::typed("state:timeout state:live").unknown_state(), None);
        assert!(Filter::states().contains("timeout, "), "{}", Filter::states());
    }
}
