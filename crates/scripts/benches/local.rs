//! The cost of the sandbox: `print(1)` by a plain interpreter, by an interpreter started in a sandbox, and
//! by a fork of a warm interpreter in a sandbox.
//!
//! The three variants alternate with a pause before each run, so that none is slowed down by the cleanup of
//! the previous one. Then the warm variant runs without pauses, so that the next sandbox is created while a
//! script runs.
//! Reports the medians of the rounds and of their ratios.

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "its results go to standard output")]

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_scripts::{LocalOptions, LocalRunner, Script, ScriptRunner};
    use rockbot_tools::ToolContext;
    use tokio::time::sleep;

    const ROUNDS: usize = 11;
    const RUNS: usize = 20;
    /// Enough to clean up after a script and to prepare the next sandbox.
    const PAUSE: Duration = Duration::from_millis(30);

    pub(crate) async fn main() {
        let warm = LocalRunner::start(LocalOptions::default()).await.unwrap();
        let cold = LocalOptions { warm: false, ..LocalOptions::default() };
        let cold = LocalRunner::start(cold).await.unwrap();
        println!("sandbox: {}", warm.isolation());
        let program = interpreter_path();
        let mut rounds = Vec::new();
        let mut back_to_back_ratios = Vec::new();
        for round in 0..=ROUNDS {
            let (mut bares, mut colds, mut warms) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..RUNS {
                sleep(PAUSE).await;
                bares.push(bare(&program));
                sleep(PAUSE).await;
                colds.push(sandboxed(&cold).await);
                sleep(PAUSE).await;
                warms.push(sandboxed(&warm).await);
            }
            let mut back_to_back = Vec::new();
            for _ in 0..RUNS {
                back_to_back.push(sandboxed(&warm).await);
            }
            if round > 0 {
                let bare = median(bares);
                rounds.push((bare, median(colds), median(warms)));
                back_to_back_ratios.push(median(back_to_back) / bare);
            }
        }
        let median_of =
            |select: fn(&(f64, f64, f64)) -> f64| median(rounds.iter().map(select).collect());
        println!("bare python3 -I -S -c 'print(1)': {:.2} ms", median_of(|round| round.0));
        println!(
            "cold in a sandbox: {:.2} ms, {:.2} x bare",
            median_of(|r| r.1),
            median_of(|r| r.1 / r.0)
        );
        println!(
            "warm in a sandbox: {:.2} ms, {:.2} x bare",
            median_of(|r| r.2),
            median_of(|r| r.2 / r.0)
        );
        println!("warm, {RUNS} without a pause: {:.2} x bare", median(back_to_back_ratios));
    }

    /// Returns the real path of `python3`. A shim of a version manager would slow down only the plain run.
    fn interpreter_path() -> String {
        let code = "import os, sys; print(os.path.realpath(sys.executable))";
        let output = Command::new("python3").args(["-I", "-S", "-c", code]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn bare(program: &str) -> f64 {
        let started = Instant::now();
        let mut command = Command::new(program);
        command.args(["-I", "-S", "-c", "print(1)"]).stdin(Stdio::null());
        assert_eq!(command.output().unwrap().stdout, b"1\n");
        milliseconds(started.elapsed())
    }

    async fn sandboxed(runner: &LocalRunner) -> f64 {
        let script = Script::new("print(1)").unwrap();
        let agent = AgentName::new("bench").unwrap();
        let context = ToolContext::new("script", SessionId::generate(), agent);
        let started = Instant::now();
        let outcome = runner.run(&script, &context).await.unwrap();
        let time = milliseconds(started.elapsed());
        assert_eq!(outcome.stdout, "1\n");
        time
    }

    fn milliseconds(time: Duration) -> f64 {
        time.as_secs_f64() * 1000.0
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

#[cfg(target_os = "linux")]
#[tokio::main]
async fn main() {
    linux::main().await;
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("scripts run locally on Linux only");
}
