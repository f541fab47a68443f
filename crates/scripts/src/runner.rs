//! The port: a script, who runs it, and what became of it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{ToolContext, ToolFailure};

use crate::requirement::{Requirements, UnusableRequirement};

/// The largest script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 256 * 1024;
/// The largest input, in bytes. With a script it fits into one object of a Kubernetes cluster (1 MiB).
pub const MAX_INPUT_BYTES: usize = 512 * 1024;
/// The largest input that a script also finds in the variable `ROCKBOT_INPUT`: Linux takes 128 KiB for
/// one variable, with its name and a zero byte.
pub const MAX_ENVIRONMENT_INPUT_BYTES: usize = 128 * 1024 - 32;
/// The variable with the input, when it is not too large for one.
pub const INPUT_VARIABLE: &str = "ROCKBOT_INPUT";
/// The variable with the path of a file that holds the input, whatever its size; unset without input.
pub const INPUT_FILE_VARIABLE: &str = "ROCKBOT_INPUT_FILE";
/// How long a script may take when nothing is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a script may take at most.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(300);

/// Python that a model wrote, with what it needs. Hostile until proven otherwise.
///
/// Checked when it is made: a runner relies on the sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    code: String,
    input: Option<String>,
    timeout: Duration,
    packages: Requirements,
}

/// Why something is not a script that can be run; for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableScript {
    /// Nothing to run.
    #[error("the script is empty")]
    Empty,
    /// No room for it.
    #[error("the {what} has {bytes} bytes, at most {limit}")]
    TooLarge {
        /// Script or input.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Neither a file of Python nor a variable can hold it.
    #[error("the {what} has a NUL character")]
    Nul {
        /// Script or input.
        what: &'static str,
    },
    /// A time-out out of range.
    #[error("a script may take 1 to {} seconds, not {}", MAX_TIMEOUT.as_secs(), .0.as_secs())]
    Timeout(Duration),
    /// A package that can't be asked for.
    #[error(transparent)]
    Requirement(#[from] UnusableRequirement),
}

impl Script {
    /// A script without input or packages, which may take [`DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    /// When it is empty, too large, or no text that Python reads.
    pub fn new(code: impl Into<String>) -> Result<Self, UnusableScript> {
        let code = code.into();
        if code.trim().is_empty() {
            return Err(UnusableScript::Empty);
        }
        check("script", &code, MAX_SCRIPT_BYTES)?;
        let packages = Requirements::default();
        Ok(Self { code, input: None, timeout: DEFAULT_TIMEOUT, packages })
    }

    /// The same with input.
    ///
    /// # Errors
    /// When it is too large.
    pub fn with_input(mut self, input: impl Into<String>) -> Result<Self, UnusableScript> {
        let input = input.into();
        check("input", &input, MAX_INPUT_BYTES)?;
        self.input = Some(input);
        Ok(self)
    }

    /// The same with another time-out, 1 s to [`MAX_TIMEOUT`].
    ///
    /// # Errors
    /// When it is out of range.
    pub fn within(mut self, timeout: Duration) -> Result<Self, UnusableScript> {
        if !(Duration::from_secs(1)..=MAX_TIMEOUT).contains(&timeout) {
            return Err(UnusableScript::Timeout(timeout));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// The same with packages.
    #[must_use]
    pub fn with_packages(mut self, packages: Requirements) -> Self {
        self.packages = packages;
        self
    }

    /// The Python.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What it reads.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        self.input.as_deref()
    }

    /// What it finds in `ROCKBOT_INPUT`: its input, unless that is too large for a variable.
    #[must_use]
    pub fn environment_input(&self) -> Option<&str> {
        self.input().filter(|input| input.len() <= MAX_ENVIRONMENT_INPUT_BYTES)
    }

    /// How long it may take, from its first instruction on.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What it imports.
    #[must_use]
    pub fn packages(&self) -> &Requirements {
        &self.packages
    }
}

fn check(what: &'static str, text: &str, limit: usize) -> Result<(), UnusableScript> {
    let bytes = text.len();
    if bytes > limit {
        return Err(UnusableScript::TooLarge { what, bytes, limit });
    }
    if text.contains('\0') {
        return Err(UnusableScript::Nul { what });
    }
    Ok(())
}

/// A script that came to an end, of its own or by a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// What it printed, up to the runner's limit.
    pub stdout: String,
    /// The end of what it complained about.
    pub stderr: String,
    /// 0 when all went well; 128 and the number of the signal when one ended it.
    pub exit_code: i32,
    /// The limit that ended it, where one did.
    pub ended_by: Option<ScriptLimit>,
    /// How long it ran.
    pub elapsed: Duration,
    /// What kept it from everything else.
    pub isolation: Isolation,
}

/// What keeps scripts from everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// By which means, in words for people, such as `bubblewrap` or `pod`.
    pub by: String,
    /// What they don't keep a script from, in words for people; empty when nothing is open.
    pub missing: Vec<String>,
}

impl Isolation {
    /// Whether a script reaches nothing but itself.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.by)?;
        if !self.missing.is_empty() {
            write!(f, " (not kept from: {})", self.missing.join(", "))?;
        }
        Ok(())
    }
}

/// Runs scripts somewhere.
pub trait ScriptRunner: Send + Sync + 'static {
    /// Runs a script. Deadline, cancellation and id of the run are the context's; the script's own
    /// time-out counts from its first instruction.
    ///
    /// A script that exits with a failure, or that a limit of output, memory or disk ended, is an
    /// outcome.
    ///
    /// # Errors
    /// When it did not run, or was stopped by its time-out, the deadline or a cancel; the failure
    /// says whether it ran.
    ///
    /// # Cancellation
    /// Dropping the future ends the script, as the context's cancellation does.
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_bounds() {
        assert_eq!(Script::new(" \n"), Err(UnusableScript::Empty));
        assert!(Script::new("x".repeat(MAX_SCRIPT_BYTES)).is_ok());
        assert!(Script::new("x".repeat(MAX_SCRIPT_BYTES + 1)).is_err());
        assert!(Script::new("x\0").is_err());
        let script = Script::new("pass").unwrap();
        assert!(script.clone().within(Duration::from_millis(999)).is_err());
        assert!(script.clone().within(Duration::from_secs(301)).is_err());
        assert!(script.clone().with_input("x".repeat(MAX_INPUT_BYTES + 1)).is_err());
        let large = script.with_input("x".repeat(MAX_ENVIRONMENT_INPUT_BYTES + 1)).unwrap();
        assert_eq!(large.environment_input(), None);
        assert!(large.input().is_some());
    }
}
