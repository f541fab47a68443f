//! The configuration sections `[audit]` and `[[hooks]]`.

use std::{path::PathBuf, time::Duration};

use rockbot_contracts::period::duration;
use rockbot_tools::ToolFilter;
use serde::Deserialize;

use crate::{
    command::{HookCommand, Moment},
    failure_policy::OnFailure,
};

/// The section `[audit]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSection {
    /// File that records are appended to, one JSON object a line. Default: none.
    pub file: Option<PathBuf>,
    /// Write records to the log as well, with the target `rockbot_audit`.
    pub log: bool,
    /// Include arguments and results in records, up to 64 KiB of each.
    pub content: bool,
    /// Handling of calls after a record could not be written, until one can.
    pub on_failure: OnFailure,
}

/// The sections `[[hooks]]`.
pub type HooksSection = Vec<HookSection>;

/// One section `[[hooks]]`: a program before calls, after calls, or both.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookSection {
    /// Program and arguments to run before a call.
    pub before: Vec<String>,
    /// Program and arguments to run after a call.
    pub after: Vec<String>,
    /// Names or patterns of the tools. Default: all.
    pub tools: Vec<String>,
    /// Environment variables that the program gets beside PATH, HOME, LANG and TZ.
    pub environment: Vec<String>,
    /// Time limit of one run. Default: 5 s.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// Handling of a call whose `before` program fails.
    pub on_failure: OnFailure,
}

impl Default for HookSection {
    fn default() -> Self {
        Self {
            before: Vec::new(),
            after: Vec::new(),
            tools: vec!["*".to_owned()],
            environment: Vec::new(),
            timeout: Self::DEFAULT_TIMEOUT,
            on_failure: OnFailure::Refuse,
        }
    }
}

impl HookSection {
    /// The default time limit of one run.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The longest time limit of one run.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(300);

    /// Returns the errors of the section at `index`.
    #[must_use]
    pub fn validate(&self, index: usize) -> Vec<String> {
        let mut problems = Vec::new();
        if self.before.is_empty() && self.after.is_empty() {
            problems.push(format!("hooks[{index}]: set before, after or both"));
        }
        for (key, command) in [("before", &self.before), ("after", &self.after)] {
            if command.first().is_some_and(String::is_empty) {
                problems.push(format!("hooks[{index}].{key}: the program has no name"));
            }
        }
        if self.tools.is_empty() {
            problems.push(format!("hooks[{index}].tools: expected at least one name or pattern"));
        }
        if self.timeout.is_zero() || self.timeout > Self::MAX_TIMEOUT {
            let limit = Self::MAX_TIMEOUT.as_secs();
            problems
                .push(format!("hooks[{index}].timeout: must be more than zero, at most {limit}s"));
        }
        problems
    }

    /// Makes the commands of this section.
    pub(crate) fn commands(&self) -> impl Iterator<Item = HookCommand> + '_ {
        let permits = HookCommand::permits();
        let moments = [(Moment::Before, &self.before), (Moment::After, &self.after)];
        moments.into_iter().filter_map(move |(moment, command)| {
            let (program, arguments) = command.split_first()?;
            Some(HookCommand {
                moment,
                program: program.clone(),
                arguments: arguments.to_vec(),
                environment: self.environment.clone(),
                tools: ToolFilter { allow: self.tools.clone(), deny: Vec::new() },
                timeout: self.timeout,
                on_failure: self.on_failure,
                permits: permits.clone(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(toml: serde_json::Value) -> Vec<String> {
        serde_json::from_value::<HookSection>(toml).unwrap().validate(0)
    }

    #[test]
    fn section_without_program_is_rejected() {
        let found = validate(serde_json::json!({}));
        assert_eq!(found, ["hooks[0]: set before, after or both"]);
        let found = validate(serde_json::json!({"after": [""]}));
        assert_eq!(found, ["hooks[0].after: the program has no name"]);
    }

    #[test]
    fn timeout_must_be_bounded() {
        let off = serde_json::json!({"before": ["true"], "timeout": "off"});
        let error = serde_json::from_value::<HookSection>(off).unwrap_err().to_string();
        assert!(error.contains("a duration with a unit"), "{error}");
        for timeout in ["0s", "10m"] {
            let found = validate(serde_json::json!({"before": ["true"], "timeout": timeout}));
            assert_eq!(found.len(), 1, "{timeout}: {found:?}");
        }
        let found = validate(serde_json::json!({"before": ["true"], "timeout": "250ms"}));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn section_makes_a_command_for_each_moment() {
        let section = HookSection {
            before: vec!["a".to_owned(), "-x".to_owned()],
            after: vec!["b".to_owned()],
            ..HookSection::default()
        };
        let commands: Vec<_> = section.commands().collect();
        assert_eq!(commands.len(), 2);
        assert_eq!((commands[0].program.as_str(), commands[0].moment), ("a", Moment::Before));
        assert_eq!(commands[0].arguments, ["-x"]);
        assert_eq!((commands[1].program.as_str(), commands[1].moment), ("b", Moment::After));
    }
}
