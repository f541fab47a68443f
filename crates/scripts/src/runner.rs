//! The port that runs scripts: [`Script`], [`ScriptOutcome`] and [`ScriptRunner`].

use std::time::Duration;

use futures_util::future::BoxFuture;
use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{ToolContext, ToolFailure};

use crate::requirement::{InvalidRequirement, Requirements};

/// The largest script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 256 * 1024;
/// The largest input, in bytes. Script and input together fit into one Kubernetes object (1 MiB).
pub const MAX_INPUT_BYTES: usize = 512 * 1024;
/// The largest input that is also set as `ROCKBOT_INPUT`: Linux limits one variable to 128 KiB,
/// including its name and a NUL byte.
pub const MAX_ENVIRONMENT_INPUT_BYTES: usize = 128 * 1024 - 32;
/// The variable that holds the input, if it fits into a variable.
pub const INPUT_VARIABLE: &str = "ROCKBOT_INPUT";
/// The variable with the path of a file that holds the input, whatever its size. Unset without input.
pub const INPUT_FILE_VARIABLE: &str = "ROCKBOT_INPUT_FILE";
/// The default timeout of a script.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest timeout of a script.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(300);

/// A Python script written by a model, with its input, timeout and packages. Treated as hostile.
///
/// The constructors check the sizes, so runners can rely on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    code: String,
    input: Option<String>,
    timeout: Duration,
    packages: Requirements,
}

/// An error in a script; for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScript {
    /// There is nothing to run.
    #[error("the script is empty")]
    Empty,
    /// The script or its input is too large.
    #[error("the {what} has {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// `script` or `input`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A NUL character, which neither Python source nor a variable can contain.
    #[error("the {what} contains a NUL character; remove it")]
    Nul {
        /// `script` or `input`.
        what: &'static str,
    },
    /// The timeout is out of range.
    #[error("the timeout must be 1 to {} seconds, not {}", MAX_TIMEOUT.as_secs(), .0.as_secs())]
    Timeout(Duration),
    /// A requested package is not valid.
    #[error(transparent)]
    Requirement(#[from] InvalidRequirement),
}

impl Script {
    /// Creates a script without input or packages and with [`DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    /// When it is empty, too large, or contains a NUL character.
    pub fn new(code: impl Into<String>) -> Result<Self, InvalidScript> {
        let code = code.into();
        if code.trim().is_empty() {
            return Err(InvalidScript::Empty);
        }
        check("script", &code, MAX_SCRIPT_BYTES)?;
        let packages = Requirements::default();
        Ok(Self { code, input: None, timeout: DEFAULT_TIMEOUT, packages })
    }

    /// Sets the input.
    ///
    /// # Errors
    /// When it is too large or contains a NUL character.
    pub fn with_input(mut self, input: impl Into<String>) -> Result<Self, InvalidScript> {
        let input = input.into();
        check("input", &input, MAX_INPUT_BYTES)?;
        self.input = Some(input);
        Ok(self)
    }

    /// Sets the timeout, 1 s to [`MAX_TIMEOUT`].
    ///
    /// # Errors
    /// When it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, InvalidScript> {
        if !(Duration::from_secs(1)..=MAX_TIMEOUT).contains(&timeout) {
            return Err(InvalidScript::Timeout(timeout));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// Sets the requested packages.
    #[must_use]
    pub fn with_packages(mut self, packages: Requirements) -> Self {
        self.packages = packages;
        self
    }

    /// Returns the source.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns the input.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        self.input.as_deref()
    }

    /// Returns the value of `ROCKBOT_INPUT`: the input, unless it is too large for a variable.
    #[must_use]
    pub fn environment_input(&self) -> Option<&str> {
        self.input().filter(|input| input.len() <= MAX_ENVIRONMENT_INPUT_BYTES)
    }

    /// Returns the timeout, which counts from the script's first instruction.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the requested packages.
    #[must_use]
    pub fn packages(&self) -> &Requirements {
        &self.packages
    }
}

fn check(what: &'static str, text: &str, limit: usize) -> Result<(), InvalidScript> {
    let bytes = text.len();
    if bytes > limit {
        return Err(InvalidScript::TooLarge { what, bytes, limit });
    }
    if text.contains('\0') {
        return Err(InvalidScript::Nul { what });
    }
    Ok(())
}

/// The outcome of a script that exited or reached a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// Its output, up to the runner's limit.
    pub stdout: String,
    /// The end of its stderr.
    pub stderr: String,
    /// 0 on success; 128 plus the signal number if a signal killed it.
    pub exit_code: i32,
    /// The limit that stopped it.
    pub ended_by: Option<ScriptLimit>,
    /// Its run time.
    pub elapsed: Duration,
    /// The isolation under which it ran.
    pub isolation: Isolation,
}

/// The isolation of a runner's scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// The mechanism, human-readable, such as `bubblewrap` or `pod`.
    pub mechanism: String,
    /// Resources that a script can still reach, human-readable. Empty when the isolation is complete.
    pub gaps: Vec<String>,
}

impl Isolation {
    /// Returns whether a script can reach nothing outside its sandbox.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.gaps.is_empty()
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.mechanism)?;
        if !self.gaps.is_empty() {
            write!(f, " (not isolated from: {})", self.gaps.join(", "))?;
        }
        Ok(())
    }
}

/// A port that runs scripts.
pub trait ScriptRunner: Send + Sync + 'static {
    /// Runs a script. The context provides call id, deadline and cancellation; the script's timeout
    /// counts from its first instruction.
    ///
    /// A script that exits with a failure, or that reaches a limit of output, memory or disk, is an
    /// outcome and not an error.
    ///
    /// # Errors
    /// When it did not run, or was stopped by its timeout, the deadline or cancellation. The failure
    /// states whether it ran.
    ///
    /// # Cancellation
    /// Dropping the future stops the script, as the context's cancellation does.
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
    fn script_sizes_and_timeout_are_bounded() {
        assert_eq!(Script::new(" \n"), Err(InvalidScript::Empty));
        assert!(Script::new("x".repeat(MAX_SCRIPT_BYTES)).is_ok());
        assert!(Script::new("x".repeat(MAX_SCRIPT_BYTES + 1)).is_err());
        assert!(Script::new("x\0").is_err());
        let script = Script::new("pass").unwrap();
        assert!(script.clone().with_timeout(Duration::from_millis(999)).is_err());
        assert!(script.clone().with_timeout(Duration::from_secs(301)).is_err());
        assert!(script.clone().with_input("x".repeat(MAX_INPUT_BYTES + 1)).is_err());
        let large = script.with_input("x".repeat(MAX_ENVIRONMENT_INPUT_BYTES + 1)).unwrap();
        assert_eq!(large.environment_input(), None);
        assert!(large.input().is_some());
    }
}
