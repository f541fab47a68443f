//! The fleet of `deploy/compose`, while it runs in a private daemon.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::{Tool, folder, secrets};
use crate::broker::{free_port, pause};
use crate::images::engine::Engine;
use crate::{process, say};

const PROJECT: &str = "rockbot-check";
/// How long a command of Compose, a container's start, and a question may take.
const START_LIMIT: Duration = Duration::from_secs(300);
const CALL_LIMIT: Duration = Duration::from_secs(90);
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// A running fleet; dropping it takes everything down, its data too.
pub(super) struct Fleet<'a> {
    engine: &'a Engine,
    tool: &'a Tool,
    /// Secrets, and the file of the environment.
    files: TempDir,
}

impl<'a> Fleet<'a> {
    /// Starts it on secrets of its own, and returns when every container is healthy.
    pub(super) fn up(engine: &'a Engine, tool: &'a Tool) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("rockbot-compose-").tempdir()?;
        secrets::write(&files.path().join("secrets"))?;
        let example = fs::read_to_string(folder().join(".env.example"))?;
        let environment = format!(
            "{example}\nCOMPOSE_PROJECT_NAME={PROJECT}\nSECRETS={}\nRABBITMQ_PORT={}\n\
             RABBITMQ_MANAGEMENT_PORT={}\nROCKBOT_TELEMETRY__OTLP_ENDPOINT=http://jaeger:4317\n\
             PROMETHEUS_PORT={}\nJAEGER_PORT={}\n",
            files.path().join("secrets").display(),
            free_port()?,
            free_port()?,
            free_port()?,
            free_port()?,
        );
        fs::write(files.path().join("env"), environment)?;
        let fleet = Self { engine, tool, files };
        // What an earlier run left that was killed.
        fleet.down()?;
        say::progress("compose", "starting the fleet");
        let start = Instant::now();
        let up = process::captured(fleet.compose().args(["up", "-d", "--no-build"]), START_LIMIT);
        let healthy = up.and_then(|_| fleet.wait_until_healthy());
        healthy.inspect_err(|_| fleet.tell_logs())?;
        let seconds = start.elapsed().as_secs();
        say::progress("compose", format_args!("every container is healthy after {seconds} s"));
        Ok(fleet)
    }

    /// Runs `rockbot` in the fleet, and returns what it printed.
    pub(super) fn rockbot(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.compose();
        command.args(["run", "--rm", "-T", "cli"]).args(arguments);
        process::captured(&mut command, CALL_LIMIT)
    }

    /// Docker's command line, ready for its arguments.
    pub(super) fn docker(&self) -> Command {
        self.engine.docker()
    }

    /// The services that run now.
    pub(super) fn services(&self) -> Result<Vec<String>> {
        let names = process::captured(self.compose().args(["ps", "--services"]), CALL_LIMIT)?;
        let names = names.lines().map(str::trim).filter(|name| !name.is_empty());
        // The older program names those of other profiles too.
        let names = names.filter(|name| self.container(name).is_ok());
        Ok(names.map(str::to_owned).collect())
    }

    /// The container of a service.
    pub(super) fn container(&self, service: &str) -> Result<String> {
        let id = process::captured(self.compose().args(["ps", "--quiet", service]), CALL_LIMIT)?;
        let id = id.trim();
        ensure!(!id.is_empty(), "{service} has no container");
        Ok(id.to_owned())
    }

    /// What Docker tells of a service's container, as a template puts it.
    pub(super) fn inspect(&self, service: &str, template: &str) -> Result<String> {
        let container = self.container(service)?;
        let mut command = self.docker();
        command.args(["inspect", "--format", template, &container]);
        Ok(process::captured(&mut command, CALL_LIMIT)?.trim().to_owned())
    }

    /// Starts a service that a profile adds.
    pub(super) fn start(&self, profile: &str, service: &str) -> Result<()> {
        let mut command = self.compose();
        command.args(["--profile", profile, "up", "-d", "--no-build", service]);
        process::captured(&mut command, START_LIMIT).map(drop)
    }

    /// The body of an answer of a service.
    pub(super) fn get(&self, service: &str, port: u16, path: &str) -> Result<String> {
        let template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}";
        let addresses = self.inspect(service, template)?;
        let address = addresses.split_whitespace().next().context("a container has no address")?;
        let address = SocketAddr::new(address.parse::<IpAddr>()?, port);
        let mut stream = TcpStream::connect_timeout(&address, PROBE_LIMIT)?;
        stream.set_read_timeout(Some(PROBE_LIMIT))?;
        stream.set_write_timeout(Some(PROBE_LIMIT))?;
        // Of this version an answer is in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {service}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.lines().next().unwrap_or_default();
        ensure!(status.split(' ').nth(1) == Some("200"), "{service} answers {path} with {status}");
        Ok(body.to_owned())
    }

    /// Shows the end of what every container said.
    pub(super) fn tell_logs(&self) {
        let logs = process::captured(self.compose().args(["logs", "--tail", "30"]), CALL_LIMIT);
        let status = process::captured(self.compose().args(["ps", "--all"]), CALL_LIMIT);
        for text in [status, logs] {
            say::heading(text.unwrap_or_else(|error| format!("{error:#}")));
        }
    }

    fn wait_until_healthy(&self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        for service in self.services()? {
            let container = self.container(&service)?;
            loop {
                process::check_interrupt()?;
                let mut inspect = self.docker();
                inspect.args(["inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}"]);
                let state = process::answer(inspect.arg(&container)).unwrap_or_default();
                match state.as_str() {
                    "running healthy" => break,
                    "running starting" => {}
                    other => bail!("{service} is {other}"),
                }
                ensure!(Instant::now() < deadline, "{service} is not healthy in time");
                pause();
            }
        }
        Ok(())
    }

    fn compose(&self) -> Command {
        let command = self.engine.command_for(&self.tool.program);
        let mut command = self.tool.with_file(command, &self.files.path().join("env"));
        command.args(["--project-name", PROJECT]);
        command
    }

    fn down(&self) -> Result<()> {
        let mut down = self.compose();
        down.args(["down", "--volumes", "--remove-orphans", "--timeout", "10"]);
        process::captured(&mut down, START_LIMIT).map(drop)
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        say::progress("compose", "taking the fleet down");
        if let Err(error) = self.down() {
            say::progress("compose", format_args!("it would not go: {error:#}"));
        }
    }
}
