//! Broken promises, and their description for the log of a run.

use std::{collections::BTreeMap, fmt::Write};

/// Violations of each kind that are described.
const DESCRIBED: usize = 3;

/// A broken promise.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) kind: &'static str,
    /// The id of the call or the session, unless the violation concerns none.
    pub(super) subject: Option<String>,
    pub(super) text: String,
}

/// Describes the first violations of each kind. `add_context` adds the history of a violation's subject.
pub(super) fn describe(
    violations: &[Violation],
    seed: u64,
    add_context: impl Fn(&mut String, &str),
) -> String {
    let mut text = String::new();
    let mut kinds = BTreeMap::<&str, Vec<&Violation>>::new();
    for violation in violations {
        kinds.entry(violation.kind).or_default().push(violation);
    }
    for (kind, violations) in kinds {
        let count = violations.len();
        let _ = writeln!(text, "\nVIOLATION {kind}: {count} times with seed {seed}");
        for violation in violations.into_iter().take(DESCRIBED) {
            let subject = violation.subject.as_deref().unwrap_or("none");
            let _ = writeln!(text, "\n {kind}: {}; {subject}", violation.text);
            add_context(&mut text, subject);
        }
    }
    text
}
