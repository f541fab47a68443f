//! The course of a turn, which the text of its message determines.

use rand::{RngExt, rngs::StdRng};
use serde_json::{Value, json};

use crate::chaos::load::{LINES, NOTES};

/// Beginning of a message with a plan.
const MARKER: &str = "Task c";
/// Seconds that a slow command runs after its side effect.
const SLOW: u64 = 3;

/// An answer of the model that requests calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A command that appends a line; it must not run twice.
    Append,
    /// A read-only tool.
    Read,
    /// A command that appends a line and runs for 3 s.
    Slow,
    /// Two commands at the same time, each of which appends a line.
    Pair,
}

impl Step {
    const ALL: [Self; 4] = [Self::Append, Self::Read, Self::Slow, Self::Pair];

    fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..16) {
            0..6 => Self::Append,
            6..11 => Self::Read,
            11..13 => Self::Slow,
            _ => Self::Pair,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Read => "read",
            Self::Slow => "slow",
            Self::Pair => "pair",
        }
    }
}

/// A message and the steps of its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnPlan {
    /// Number of the conversation in the run.
    pub(super) conversation: usize,
    /// Number of the message in its conversation, from 1.
    pub(super) message: usize,
    pub(super) steps: Vec<Step>,
}

/// A call that a step requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedCall {
    /// The model's id of the call, which is also the text of its line.
    pub(super) id: String,
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
}

impl TurnPlan {
    /// Creates a plan of 1 to 8 steps.
    pub(super) fn random(conversation: usize, message: usize, random: &mut StdRng) -> Self {
        let count = random.random_range(1..=8);
        let steps = (0..count).map(|_| Step::random(random)).collect();
        Self { conversation, message, steps }
    }

    /// Returns the text of the message.
    pub(super) fn text(&self) -> String {
        let Self { conversation, message, steps } = self;
        let words: Vec<_> = steps.iter().map(|step| step.word()).collect();
        format!("{MARKER}{conversation} m{message}: {}.", words.join(" "))
    }

    /// Reads the plan in a message, to which the agent may have added context.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (_, text) = text.split_once(MARKER)?;
        let (head, rest) = text.split_once(": ")?;
        let (conversation, message) = head.split_once(" m")?;
        let (words, _) = rest.split_once('.')?;
        let step = |word: &str| Step::ALL.into_iter().find(|step| step.word() == word);
        Some(Self {
            conversation: conversation.parse().ok()?,
            message: message.parse().ok()?,
            steps: words.split(' ').map(step).collect::<Option<_>>()?,
        })
    }

    /// Returns the calls of a step, counted from 0.
    pub(super) fn calls(&self, step: usize) -> Vec<PlannedCall> {
        let id =
            |call: usize| format!("c{}-m{}-s{}-{call}", self.conversation, self.message, step + 1);
        match self.steps[step] {
            Step::Append => vec![append(id(1), 0)],
            Step::Slow => vec![append(id(1), SLOW)],
            Step::Pair => vec![append(id(1), 0), append(id(2), 0)],
            Step::Read => {
                let arguments = json!({"path": NOTES});
                vec![PlannedCall { id: id(1), tool: "read_file", arguments }]
            }
        }
    }

    /// Returns the answer after the last step.
    pub(super) fn answer(&self) -> String {
        format!("Finished c{} m{}.", self.conversation, self.message)
    }
}

/// Returns a call of a command that first appends one line: the id of the call, the time and the handler.
fn append(id: String, seconds: u64) -> PlannedCall {
    let mut command = format!("echo {id} $EPOCHREALTIME $PPID >> {LINES}");
    if seconds > 0 {
        command += &format!("; sleep {seconds}");
    }
    PlannedCall { id, tool: "bash", arguments: json!({"command": command}) }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn text_determines_plan() {
        let mut random = StdRng::seed_from_u64(7);
        for message in 1..50 {
            let plan = TurnPlan::random(17, message, &mut random);
            let text = format!("Note. {}\n\nContext: today.", plan.text());
            assert_eq!(TurnPlan::parse(&text), Some(plan));
        }
        assert_eq!(TurnPlan::parse("Task c1 m1: fly."), None);
    }

    #[test]
    fn calls_have_different_ids() {
        let steps = vec![Step::Append, Step::Pair, Step::Read, Step::Slow];
        let plan = TurnPlan { conversation: 3, message: 2, steps };
        let calls: Vec<_> = (0..4).flat_map(|step| plan.calls(step)).collect();
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["c3-m2-s1-1", "c3-m2-s2-1", "c3-m2-s2-2", "c3-m2-s3-1", "c3-m2-s4-1"]);
    }
}
