//! `cargo xtask compose`: whether `deploy/compose` holds what it promises.

mod checks;
mod fleet;
mod secrets;
mod traces;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::broker::find_program;
use crate::images::engine::{Build, Engine};
use crate::images::{self, Source, stand_ins};
use crate::{apt, process, say, workspace};
use fleet::Fleet;

/// What Debian calls it.
const PACKAGE: &str = "docker-compose";
const PROFILES: [&str; 5] = ["observability", "local-llm", "openrouter", "kubernetes", "cli"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write passwords, the broker's definitions and URLs into deploy/compose/secrets; what is there
    /// stays valid
    #[arg(long, conflicts_with = "up")]
    secrets: bool,
    /// Build everything and run the fleet: a tool call, an MCP call and a turn, as nobody in
    /// particular on read-only roots; in a private daemon, as root on Linux
    #[arg(long)]
    up: bool,
    /// The profile of Cargo to build with, with --up
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// With --up, put the programs of this folder into the images instead of compiling them there. They
    /// must run on Debian 12
    #[arg(long, value_name = "DIR", conflicts_with = "profile")]
    programs: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.secrets {
        let folder = folder().join("secrets");
        secrets::write(&folder)?;
        say::progress("compose", format_args!("wrote the secrets into {}", folder.display()));
        return Ok(());
    }
    validate(&Tool::find(&|program| Command::new(program))?)?;
    match (options.up, &options.programs) {
        (false, _) => Ok(()),
        (true, Some(folder)) => try_out(&Source::Programs(folder)),
        (true, None) => try_out(&Source::Sources { profile: &options.profile }),
    }
}

/// Validates the files and runs the fleet with these programs.
pub(crate) fn run_programs(folder: &Path) -> Result<()> {
    validate(&Tool::find(&|program| Command::new(program))?)?;
    try_out(&Source::Programs(folder))
}

/// Makes the images that the fleet of [`run_programs`] is built on, so that they are there in time.
pub(crate) fn prepare() -> Result<()> {
    let engine = Engine::private()?;
    stand_ins::make(&engine, &stand_ins::FOR_PROGRAMS)?;
    stand_ins::make(&engine, &stand_ins::FOR_FLEETS)?;
    stand_ins::make(&engine, &stand_ins::FOR_COMPOSE)
}

/// Where the files are.
fn folder() -> PathBuf {
    workspace::root().join("deploy/compose")
}

/// Docker Compose: the plugin of Docker, or the program of older days.
#[derive(Debug, Clone)]
struct Tool {
    program: PathBuf,
    words: &'static [&'static str],
}

impl Tool {
    /// The first one that `command` can run: plugins can be a person's own.
    fn find(command: &dyn Fn(&Path) -> Command) -> Result<Self> {
        let plugin = Self { program: "docker".into(), words: &["compose"] };
        if process::answer(command(&plugin.program).args(["compose", "version"])).is_some() {
            return Ok(plugin);
        }
        let find = || find_program(PACKAGE).map(|program| Self { program, words: &[] });
        if let Some(tool) = find() {
            return Ok(tool);
        }
        if apt::install(&[PACKAGE])?
            && let Some(tool) = find()
        {
            return Ok(tool);
        }
        bail!("there is no Docker Compose: install the plugin compose, or {PACKAGE} 1.29 or later")
    }

    /// Makes `command`, which runs the program, one that works with our file.
    fn with_file(&self, mut command: Command, environment: &Path) -> Command {
        command.args(self.words).arg("--file").arg(folder().join("compose.yaml"));
        command.arg("--env-file").arg(environment);
        command
    }
}

/// Every profile by itself, and all at once, with what `.env.example` says.
fn validate(tool: &Tool) -> Result<()> {
    let environment = folder().join(".env.example");
    let each = PROFILES.iter().map(std::slice::from_ref);
    for profiles in [&[][..], &PROFILES[..]].into_iter().chain(each) {
        let mut command = tool.with_file(Command::new(&tool.program), &environment);
        command.args(profiles.iter().flat_map(|profile| ["--profile", profile]));
        process::run(command.args(["config", "--quiet"]))
            .with_context(|| format!("compose.yaml can't be used with {profiles:?}"))?;
    }
    say::progress("compose", format_args!("valid, with {} profiles", PROFILES.len()));
    Ok(())
}

fn try_out(source: &Source<'_>) -> Result<()> {
    let engine = Engine::private()?;
    let tool = Tool::find(&|program| engine.command_for(program))?;
    if let Source::Sources { .. } = source {
        stand_ins::make(&engine, &stand_ins::FOR_SOURCES)?;
    }
    stand_ins::make(&engine, &stand_ins::FOR_PROGRAMS)?;
    stand_ins::make(&engine, &stand_ins::FOR_FLEETS)?;
    stand_ins::make(&engine, &stand_ins::FOR_COMPOSE)?;
    images::build(&engine, source)?;
    let example = folder().join("example-mcp");
    engine.build(&Build {
        file: example.join("Dockerfile"),
        context: example,
        target: None,
        tag: format!("rockbot-example-mcp:{}", images::VERSION),
        arguments: Vec::new(),
    })?;
    let fleet = Fleet::up(&engine, &tool)?;
    checks::all(&fleet).inspect_err(|_| fleet.tell_logs())
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
