//! The filter of the shown calls.

use rockbot_contracts::ToolErrorCode;

use crate::calls::{Call, State};

/// Groups of states.
const GROUPS: [&str; 3] = ["live", "ended", "failed"];

/// States of a call, except error codes.
const STATES: [&str; 6] = ["requested", "running", "cancelling", "no_reply", "ok", "tool_error"];

/// A filter for calls. One term of each given kind must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    agents: Vec<String>,
    tools: Vec<String>,
    states: Vec<String>,
    /// Texts that must all occur somewhere in the row.
    texts: Vec<String>,
}

impl Filter {
    /// Creates a filter of agents, tools and states. A call matches a kind if it matches any of its texts.
    pub fn new(agents: &[String], tools: &[String], states: &[String]) -> Self {
        let lower = |texts: &[String]| texts.iter().map(|text| text.to_lowercase()).collect();
        Self {
            agents: lower(agents),
            tools: lower(tools),
            states: lower(states),
            texts: Vec::new(),
        }
    }

    /// Parses a typed filter: `agent:TEXT`, `tool:TEXT`, `state:STATE`, or any text.
    pub fn parse(line: &str) -> Self {
        let mut filter = Self::default();
        for term in line.split_whitespace() {
            let term = term.to_lowercase();
            let (texts, text) = match term.split_once(':') {
                Some(("agent", text)) => (&mut filter.agents, text),
                Some(("tool", text)) => (&mut filter.tools, text),
                Some(("state", text)) => (&mut filter.states, text),
                _ => (&mut filter.texts, term.as_str()),
            };
            // A term without text is still being typed.
            if !text.is_empty() {
                texts.push(text.to_owned());
            }
        }
        filter
    }

    /// Formats the filter as it would be typed.
    pub fn to_line(&self) -> String {
        let kinds = [
            ("agent:", &self.agents),
            ("tool:", &self.tools),
            ("state:", &self.states),
            ("", &self.texts),
        ];
        let terms = kinds
            .into_iter()
            .flat_map(|(kind, texts)| texts.iter().map(move |t| format!("{kind}{t}")));
        terms.collect::<Vec<_>>().join(" ")
    }

    /// Returns the first state that does not exist.
    pub fn unknown_state(&self) -> Option<&str> {
        let known = |state: &str| {
            let codes = ToolErrorCode::KNOWN;
            STATES.contains(&state)
                || GROUPS.contains(&state)
                || codes.iter().any(|code| code.as_str() == state)
        };
        self.states.iter().map(String::as_str).find(|state| !known(state))
    }

    /// Lists the states and groups of states.
    pub fn states() -> String {
        let codes = ToolErrorCode::KNOWN;
        let states =
            STATES.into_iter().chain(codes.iter().map(ToolErrorCode::as_str)).chain(GROUPS);
        states.collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the call matches.
    pub fn matches(&self, call: &Call) -> bool {
        let contains = |whole: Option<&str>, text: &String| {
            whole.is_some_and(|whole| whole.to_lowercase().contains(text))
        };
        let any = |texts: &[String], test: &dyn Fn(&String) -> bool| {
            texts.is_empty() || texts.iter().any(test)
        };
        let (agent, tool) = (call.agent.as_deref(), call.tool.as_deref());
        let state = call.state();
        any(&self.agents, &|text| contains(agent, text))
            && any(&self.tools, &|text| contains(tool, text) || contains(call.server(), text))
            && any(&self.states, &|text| state_matches(&state, text))
            && self.texts.iter().all(|text| {
                let parts = [agent, tool, call.server(), call.handler(), Some(state.as_str())];
                parts.into_iter().any(|part| contains(part, text))
                    || call.id.as_str().to_lowercase().contains(text)
            })
    }
}

fn state_matches(state: &State<'_>, text: &str) -> bool {
    match text {
        "live" => state.is_live(),
        "ended" => !state.is_live(),
        "failed" => state.is_failed(),
        name => state.as_str() == name,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        calls::{
            Calls,
            tests::{progress, reply, request},
        },
        message::Status,
    };

    #[track_caller]
    fn check(filter: &str, expected: [bool; 3]) {
        let filter = Filter::parse(filter);
        let mut calls = Calls::default();
        for message in [
            request("waits"),
            request("runs"),
            request("fails"),
            progress("runs", 1),
            reply("fails", Status::ToolError),
        ] {
            calls.record(message, Duration::ZERO);
        }
        let mut matches = calls.newest_first().map(|call| filter.matches(call)).collect::<Vec<_>>();
        matches.reverse();
        assert_eq!(matches, expected, "{filter:?}");
    }

    #[test]
    fn filter_terms_select_calls() {
        check("", [true; 3]);
        check("agent:ASSIST", [true; 3]);
        check("agent:other", [false; 3]);
        check("agent:other agent:assistant", [true; 3]);
        check("tool:read state:requested", [true, false, false]);
        check("state:running", [false, true, false]);
        check("state:live", [true, true, false]);
        check("state:ended", [false, false, true]);
        check("state:failed", [false, false, true]);
        check("state:tool_error state:requested", [true, false, true]);
        check("h1", [false, true, true]);
        check("h1 runs", [false, true, false]);
        check("state:", [true; 3]);
    }

    #[test]
    fn filter_round_trips_through_its_line() {
        let texts = |text: &str| vec![text.to_owned()];
        let filter = Filter::new(&texts("Assistant"), &texts("bash"), &texts("failed"));
        assert_eq!(filter.to_line(), "agent:assistant tool:bash state:failed");
        assert_eq!(Filter::parse(&filter.to_line()), filter);
    }

    #[test]
    fn unknown_state_is_detected() {
        assert_eq!(Filter::parse("state:faild").unknown_state(), Some("faild"));
        assert_eq!(Filter::parse("state:timeout state:live").unknown_state(), None);
        assert!(Filter::states().contains("timeout, "), "{}", Filter::states());
    }
}
