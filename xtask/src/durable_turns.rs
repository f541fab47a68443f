//! Turns of 8 steps with and without a log, their records alone, and Restate and DBOS, alternated.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::line_program::LineProgram;
use crate::node::Node;
use crate::server::Server;
use crate::{broker, console, postgresql, process, python, workspace};

const IN_FLIGHT: [u32; 3] = [1, 16, 64];
/// Milliseconds of a measurement.
const LENGTH: u32 = 1000;
const RESTATE_SERVER: &str = "@restatedev/restate-server@1.7.12";
const DBOS: &str = "dbos==3.4.0";

/// A program and the variant of it that is measured.
struct Variant {
    title: &'static str,
    program: usize,
    name: &'static str,
}

/// Measures all variants in each round, in alternating order, and prints the medians of the rounds and of the
/// ratios to the log in SQLite. `rockbot` is the program of the benchmark `turns`, `records` that of `appends`.
pub(crate) fn run(rockbot: &Path, records: &Path, rounds: usize, profile: &str) -> Result<()> {
    let restate = build_peer("restate", profile)?;
    let dbos = build_peer("dbos", profile)?;
    let environment = workspace::peers_folder()?.join("dbos-python");
    python::environment(&environment, &[DBOS], python::Dependencies::Install, true)?;
    let postgres = postgresql::start(broker::free_port()?, true)?;
    let dbos_postgres = postgresql::start(broker::free_port()?, true)?;
    let python_postgres = postgresql::start(broker::free_port()?, true)?;
    let folder = tempfile::tempdir()?;
    let server = RestateServer::start(folder.path())?;
    let mut programs = [
        LineProgram::start(
            "turns",
            Command::new(rockbot).env("ROCKBOT_TEST_POSTGRES_URL", postgres.url()),
        )?,
        LineProgram::start(
            "appends",
            Command::new(records).arg("steps").env("ROCKBOT_TEST_POSTGRES_URL", postgres.url()),
        )?,
        LineProgram::start("restate-turns", &mut server.client(&restate)?)?,
        LineProgram::start("dbos-turns", Command::new(&dbos).arg(dbos_postgres.url()))?,
        LineProgram::start(
            "dbos_turns.py",
            Command::new(python::program(&environment, "python"))
                .arg(workspace::peer_file("dbos_turns.py"))
                .arg(python_postgres.url().replace("postgres://", "postgresql://")),
        )?,
    ];
    let variants = [
        Variant { title: "RockBot, log in SQLite", program: 0, name: "sqlite" },
        Variant { title: "RockBot, log in PostgreSQL", program: 0, name: "postgresql" },
        Variant { title: "RockBot, no stored log", program: 0, name: "memory" },
        Variant { title: "Records alone, log in SQLite", program: 1, name: "log-sqlite" },
        Variant { title: "Records alone, inserts in SQLite", program: 1, name: "inserts-sqlite" },
        Variant { title: "Records alone, log in PostgreSQL", program: 1, name: "log-postgresql" },
        Variant {
            title: "Records alone, inserts in PostgreSQL",
            program: 1,
            name: "inserts-postgresql",
        },
        Variant { title: "Restate, Rust SDK", program: 2, name: "restate" },
        Variant { title: "DBOS, Rust, PostgreSQL", program: 3, name: "dbos" },
        Variant { title: "DBOS, Python, PostgreSQL", program: 4, name: "dbos" },
    ];
    console::line(format_args!(
        "| at once | | steps/s | p50 | p99 | steps/s to the log in SQLite |"
    ));
    console::line(format_args!("|---:|---|---:|---:|---:|---:|"));
    for in_flight in IN_FLIGHT {
        let mut samples = vec![Vec::new(); variants.len()];
        // The first round warms up.
        for round in 0..=rounds {
            for position in 0..variants.len() {
                process::check_interrupt()?;
                let which = (position + round) % variants.len();
                let Variant { program, name, .. } = variants[which];
                let reply = programs[program].ask(&format!("{name} {in_flight} {LENGTH}"))?;
                if round > 0 {
                    samples[which].push(parse(&reply)?);
                }
            }
        }
        for (variant, own) in variants.iter().zip(&samples) {
            let [rate, p50, p99] = [0, 1, 2].map(|at| median(own.iter().map(|sample| sample[at])));
            let ratio = median(own.iter().zip(&samples[0]).map(|(one, base)| one[0] / base[0]));
            console::line(format_args!(
                "| {in_flight} | {} | {rate:.0} | {:.1} ms | {:.1} ms | {ratio:.2} |",
                variant.title,
                p50 / 1000.0,
                p99 / 1000.0,
            ));
        }
    }
    Ok(())
}

/// Parses steps per second, and two times in microseconds.
fn parse(reply: &str) -> Result<[f64; 3]> {
    let numbers = reply.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>();
    let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
    numbers.with_context(|| format!("not a measurement: {reply:?}"))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Builds the program `<name>-turns` of `benches/<name>`, a workspace of its own, and returns its path.
fn build_peer(name: &str, profile: &str) -> Result<PathBuf> {
    let (profile, folder) =
        if profile == "dev" { ("dev", "debug") } else { ("release", "release") };
    let root = workspace::root().join("benches").join(name);
    let target = workspace::peers_folder()?.join(format!("{name}-bench"));
    let mut command = workspace::cargo();
    process::run(
        command
            .args(["build", "--locked", "--profile", profile, "--manifest-path"])
            .arg(root.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target),
    )?;
    Ok(target.join(folder).join(format!("{name}-turns")))
}

/// A Restate server with its data in a folder.
struct RestateServer {
    _server: Server,
    ingress: u16,
    admin: u16,
}

impl RestateServer {
    fn start(folder: &Path) -> Result<Self> {
        let packages = workspace::peers_folder()?.join("restate");
        Node::find(true)?.packages(&packages, &[RESTATE_SERVER.to_owned()])?;
        let scope = packages.join("node_modules/@restatedev");
        let programs = std::fs::read_dir(&scope)?
            .map_while(|entry| Some(entry.ok()?.path().join("bin/restate-server")));
        let program = programs.filter(|program| program.is_file()).last();
        let program = program.with_context(|| {
            format!("{RESTATE_SERVER} has no program for this machine in {}", scope.display())
        })?;
        let (ingress, admin, node) =
            (broker::free_port()?, broker::free_port()?, broker::free_port()?);
        let address = |port: u16| format!("127.0.0.1:{port}");
        let server = Server::start(
            "restate",
            Command::new(program)
                .arg("--base-dir")
                .arg(folder)
                .env("RESTATE_LISTEN_MODE", "tcp")
                .env("RESTATE_BIND_ADDRESS", address(node))
                .env("RESTATE_INGRESS__BIND_ADDRESS", address(ingress))
                .env("RESTATE_ADMIN__BIND_ADDRESS", address(admin))
                .env("RESTATE_DISABLE_TELEMETRY", "true"),
            admin,
        )?;
        ensure!(broker::is_listening(ingress), "the ingress of Restate does not listen");
        Ok(Self { _server: server, ingress, admin })
    }

    /// Returns the command of the program that serves and sends the turns.
    fn client(&self, program: &Path) -> Result<Command> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.args([url(self.ingress), url(self.admin), broker::free_port()?.to_string()]);
        command.stderr(Stdio::null());
        Ok(command)
    }
}
