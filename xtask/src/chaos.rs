//! `cargo xtask chaos`: random faults under load, on a private broker and database.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::e2e_suite::Suite;
use crate::newer_servers::NewerServers;
use crate::{apt, broker, console, faketime, postgres, process, workspace};

/// A scenario of the suite: its test, and the columns of its table.
#[derive(Debug)]
struct Scenario {
    test: &'static str,
    /// Prefix of the folder of a run, before its seed.
    folder: &'static str,
    /// Title and field of a report.
    columns: &'static [(&'static str, &'static str)],
    /// Set if its faults change clocks.
    changes_clocks: bool,
}

/// Tool calls.
static CALLS: Scenario = Scenario {
    test: "chaos::calls_keep_their_promises_under_random_faults",
    folder: "seed",
    columns: &[
        ("calls", "calls"),
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("not executed", "notExecuted"),
        ("unknown", "unknown"),
        ("abandoned", "abandoned"),
        ("late replies", "lateReplies"),
        ("copies", "duplicateReplies"),
        ("overtaken", "overtaken"),
    ],
    changes_clocks: true,
};
/// Turns of agents.
static TURNS: Scenario = Scenario {
    test: "chaos::turns::turns_keep_their_promises_under_random_kills",
    folder: "turns-seed",
    columns: &[
        ("turns", "turns"),
        ("completed", "completed"),
        ("other outcomes", "notCompleted"),
        ("expired", "expired"),
        ("takeovers", "takeovers"),
        ("put down", "putDowns"),
        ("adopted", "adopted"),
        ("copies", "copies"),
        ("calls", "calls"),
        ("not executed", "notExecuted"),
        ("unknown", "unknown"),
    ],
    changes_clocks: false,
};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seed of the faults and the calls
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Duration of the faults of a run, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// Number of runs, each with the next seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// Kill replicas of an agent under turns of many conversations, instead of handlers under calls
    #[arg(long)]
    turns: bool,
    /// Run on this version of RabbitMQ, such as 3.10, 4.0 or 4.3
    #[arg(long, value_name = "VERSION")]
    broker: Option<String>,
    /// Print the reports as JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Runs the suite with each seed, prints the reports, and fails if a promise was broken.
pub(crate) fn run(options: &Options) -> Result<()> {
    if broker::find_server().is_none() && !apt::install(&["rabbitmq-server"])? {
        bail!("RabbitMQ is not installed: {}", broker::HOW_TO_GET_A_BROKER);
    }
    if postgres::find_programs().is_none() && !apt::install(&["postgresql"])? {
        bail!("PostgreSQL is not installed: {}", postgres::HOW_TO_GET_POSTGRESQL);
    }
    let scenario = if options.turns { &TURNS } else { &CALLS };
    let faketime =
        if scenario.changes_clocks { Some(faketime::find_or_install(true)?) } else { None };
    console::heading("build the suite and the programs");
    let suite = Suite::build("dev")?;
    let newer = NewerServers::start(options.broker.as_deref(), None)?;
    let mut reports = Vec::new();
    let mut failed = Vec::new();
    for seed in (options.seed..).take(usize::try_from(options.runs)?) {
        console::heading(format_args!("seed {seed}, {} s", options.seconds));
        let folder =
            workspace::folder("rockbot-chaos")?.join(format!("{}-{seed}", scenario.folder));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let mut command = suite.command(scenario.test);
        command
            .arg("--exact")
            .env("ROCKBOT_CHAOS_SEED", seed.to_string())
            .env("ROCKBOT_CHAOS_SECONDS", options.seconds.to_string())
            .env("ROCKBOT_CHAOS_FOLDER", &folder)
            .envs(faketime.iter().map(|library| (faketime::VARIABLE, library)));
        let outcome = match &newer {
            Some(newer) => process::run(newer.wrap(&command).stdout(standard_error()?)),
            None => process::run(command.stdout(standard_error()?)),
        };
        process::check_interrupt()?;
        if let Err(error) = outcome {
            console::progress("chaos", format_args!("seed {seed}: {error:#}"));
            console::progress("chaos", format_args!("logs: {}", folder.display()));
            failed.push(seed);
        }
        reports.extend(read_report(&folder));
    }
    print(&if options.json {
        format!("{:#}\n", Value::Array(reports))
    } else {
        table(scenario, &reports)
    })?;
    ensure!(failed.is_empty(), "runs failed with the seeds {failed:?}");
    Ok(())
}

fn read_report(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).ok()?).ok()
}

/// Returns a table in Markdown with a row for each run and their sum.
fn table(scenario: &Scenario, reports: &[Value]) -> String {
    let mut text = String::from("| seed | faults |");
    for (title, _) in scenario.columns {
        let _ = write!(text, " {title} |");
    }
    text += " unknown % | violations |\n|---|---|";
    text += &"---|".repeat(scenario.columns.len() + 2);
    text += "\n";
    for report in reports {
        row(&mut text, scenario, &report["seed"].to_string(), std::slice::from_ref(report));
    }
    row(&mut text, scenario, &format!("{} runs", reports.len()), reports);
    text
}

fn row(text: &mut String, scenario: &Scenario, title: &str, reports: &[Value]) {
    let sum = |field: &str| -> u64 {
        reports.iter().map(|report| report[field].as_u64().unwrap_or_default()).sum()
    };
    let counts = |report: &Value| -> u64 {
        let faults = report["faults"].as_object().into_iter().flatten();
        faults.map(|(_, count)| count.as_u64().unwrap_or_default()).sum()
    };
    let faults: u64 = reports.iter().map(counts).sum();
    let _ = write!(text, "| {title} | {faults} |");
    for (_, field) in scenario.columns {
        let _ = write!(text, " {} |", sum(field));
    }
    let waited = sum("calls").saturating_sub(sum("abandoned")).max(1);
    let unknown = sum("unknown") as f64 * 100.0 / waited as f64;
    let violations: usize =
        reports.iter().map(|report| report["violations"].as_array().map_or(0, Vec::len)).sum();
    let _ = writeln!(text, " {unknown:.1} | {violations} |");
}

/// Returns standard error, for the output of a program that is not the result of this task.
fn standard_error() -> Result<Stdio> {
    Ok(std::io::stderr().as_fd().try_clone_to_owned()?.into())
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot print the report")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CALLS, TURNS, table};

    #[test]
    fn table_adds_up_the_runs() {
        let run = json!({
            "seed": 7, "faults": {"kill handler": 2, "stop broker": 1}, "calls": 120,
            "succeeded": 90, "failed": 3, "notExecuted": 2, "unknown": 5, "abandoned": 20,
            "lateReplies": 1, "duplicateReplies": 4, "overtaken": 0, "violations": [{}],
        });
        let text = table(&CALLS, &[run.clone(), run]);
        let rows: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(rows[0], "| 7 | 3 | 120 | 90 | 3 | 2 | 5 | 20 | 1 | 4 | 0 | 5.0 | 1 |");
        assert_eq!(rows[2], "| 2 runs | 6 | 240 | 180 | 6 | 4 | 10 | 40 | 2 | 8 | 0 | 5.0 | 2 |");
    }

    #[test]
    fn table_of_turns_has_their_columns() {
        let run = json!({
            "seed": 3, "faults": {"kill agent": 4}, "turns": 60, "completed": 59,
            "notCompleted": 1, "expired": 0, "takeovers": 8, "putDowns": 2, "adopted": 3, "copies": 1,
            "calls": 200, "notExecuted": 0, "unknown": 4, "violations": [],
        });
        let text = table(&TURNS, &[run]);
        let row = text.lines().nth(2);
        assert_eq!(
            row,
            Some("| 3 | 4 | 60 | 59 | 1 | 0 | 8 | 2 | 3 | 1 | 200 | 0 | 4 | 2.0 | 0 |")
        );
    }
}
