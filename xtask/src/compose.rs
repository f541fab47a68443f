//! `cargo xtask compose`: checks of `deploy/compose`.

mod additions;
mod checks;
mod fleet;
mod traces;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::broker::find_program;
use crate::images::engine::{Build, Engine};
use crate::images::{self, Source, stand_ins};
use crate::{apt, console, process, rockbot, workspace};
use fleet::Fleet;

/// Debian's package of Docker Compose, and the name of its program.
const PACKAGE: &str = "docker-compose";
const PROFILES: [&str; 6] =
    ["observability", "local-llm", "gateway", "openrouter", "kubernetes", "cli"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Build the images and check a running fleet (a tool call, an MCP call, a turn, unprivileged
    /// containers) in a private Docker daemon; needs root and Linux
    #[arg(long)]
    up: bool,
    /// The Cargo profile of the build, with --up
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// With --up, use the programs of this folder instead of compiling them. They must run on Debian 12
    #[arg(long, value_name = "DIR", conflicts_with = "profile")]
    programs: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    validate(&Tool::find(&|program| Command::new(program))?)?;
    match (options.up, &options.programs) {
        (false, _) => Ok(()),
        (true, Some(folder)) => run_fleet(&Source::Programs(folder)),
        (true, None) => run_fleet(&Source::Sources { profile: &options.profile }),
    }
}

/// Validates the files and checks a fleet with existing programs.
pub(crate) fn run_programs(folder: &Path) -> Result<()> {
    validate(&Tool::find(&|program| Command::new(program))?)?;
    run_fleet(&Source::Programs(folder))
}

/// Builds the base images for [`run_programs`] ahead of time.
pub(crate) fn prepare() -> Result<()> {
    let engine = Engine::private()?;
    stand_ins::build(&engine, &stand_ins::FOR_PROGRAMS)?;
    stand_ins::build(&engine, &stand_ins::FOR_FLEETS)?;
    stand_ins::build(&engine, &stand_ins::FOR_COMPOSE)
}

/// Returns the folder of the files.
fn folder() -> PathBuf {
    workspace::root().join("deploy/compose")
}

/// Docker Compose: the plugin of Docker, or the older standalone program.
#[derive(Debug, Clone)]
struct Tool {
    program: PathBuf,
    subcommand: &'static [&'static str],
}

impl Tool {
    /// Returns the first installation that works with `command`: a plugin may be installed for one user.
    fn find(command: &dyn Fn(&Path) -> Command) -> Result<Self> {
        let plugin = Self { program: "docker".into(), subcommand: &["compose"] };
        if process::stdout(command(&plugin.program).args(["compose", "version"])).is_some() {
            return Ok(plugin);
        }
        let find = || find_program(PACKAGE).map(|program| Self { program, subcommand: &[] });
        if let Some(tool) = find() {
            return Ok(tool);
        }
        if apt::install(&[PACKAGE])?
            && let Some(tool) = find()
        {
            return Ok(tool);
        }
        bail!("Docker Compose is not installed: install the plugin, or {PACKAGE} 1.29 or later")
    }

    /// Adds the arguments for our file to `command`, which runs the program.
    fn with_file(&self, mut command: Command, environment: &Path) -> Command {
        command.args(self.subcommand).arg("--file").arg(folder().join("compose.yaml"));
        command.arg("--env-file").arg(environment);
        command
    }
}

/// Validates the file with each profile and with all of them, with the variables of `.env.example`.
fn validate(tool: &Tool) -> Result<()> {
    let environment = folder().join(".env.example");
    let each = PROFILES.iter().map(std::slice::from_ref);
    for profiles in [&[][..], &PROFILES[..]].into_iter().chain(each) {
        let mut command = tool.with_file(Command::new(&tool.program), &environment);
        command.args(profiles.iter().flat_map(|profile| ["--profile", profile]));
        process::run(command.args(["config", "--quiet"]))
            .with_context(|| format!("compose.yaml is invalid with the profiles {profiles:?}"))?;
    }
    console::progress("compose", format_args!("valid, with {} profiles", PROFILES.len()));
    Ok(())
}

fn run_fleet(source: &Source<'_>) -> Result<()> {
    let engine = Engine::private()?;
    let tool = Tool::find(&|program| engine.command_for(program))?;
    if let Source::Sources { .. } = source {
        stand_ins::build(&engine, &stand_ins::FOR_SOURCES)?;
    }
    stand_ins::build(&engine, &stand_ins::FOR_PROGRAMS)?;
    stand_ins::build(&engine, &stand_ins::FOR_FLEETS)?;
    stand_ins::build(&engine, &stand_ins::FOR_COMPOSE)?;
    images::build(&engine, source)?;
    for name in ["example-mcp", "package-index"] {
        let context = folder().join(name);
        engine.build(&Build {
            file: context.join("Dockerfile"),
            context,
            target: None,
            tag: format!("rockbot-{name}:{}", images::VERSION),
            arguments: Vec::new(),
        })?;
    }
    let rockbot = match source {
        Source::Programs(folder) => folder.join("rockbot"),
        Source::Sources { .. } => rockbot::build()?,
    };
    let fleet = Fleet::up(&engine, &tool, &rockbot)?;
    checks::run(&fleet).inspect_err(|_| fleet.print_logs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_of_the_file_is_validated() {
        let text = std::fs::read_to_string(folder().join("compose.yaml")).unwrap();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("profiles: ["));
        let named: Vec<_> = lines.map(|names| names.trim_end_matches(']')).collect();
        assert!(!named.is_empty());
        for name in &named {
            assert!(PROFILES.contains(name), "{name} is not validated");
        }
        assert!(PROFILES.iter().all(|profile| named.contains(profile)));
    }
}
