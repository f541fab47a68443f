//! A home directory with a scripted model.

use std::process::Command;

use crate::sandbox::{CommandOutput, Sandbox, TIMEOUT};

/// A sandbox with a model script and a home directory.
pub(crate) struct Home {
    pub(crate) sandbox: Sandbox,
    script: String,
}

impl Home {
    pub(crate) fn new(script: &str) -> Self {
        let sandbox = Sandbox::new();
        let script = sandbox.write("script.toml", script).display().to_string();
        Self { sandbox, script }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.std_command(arguments);
        command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", &self.script);
        command.env("HOME", self.sandbox.temporary());
        command
    }

    /// Runs a command that must exit with `code`.
    #[track_caller]
    pub(crate) fn check(&self, arguments: &[&str], code: i32) -> CommandOutput {
        let mut command = assert_cmd::Command::from_std(self.command(arguments));
        let output = command.write_stdin("").timeout(TIMEOUT).output().expect("it runs");
        let output = CommandOutput::new(output);
        output.assert_code(code, arguments);
        output
    }
}
