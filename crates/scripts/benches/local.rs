//! The cost of the sandbox: `print(1)` by a plain interpreter, by an interpreter started in a sandbox, and
//! by a fork of a warm interpreter in a sandbox.
//!
//! The three alternate with a pause before each, so that none is slowed down by the cleanup of the
//! previous one; then the warm one runs without pauses, so that cells are created while scripts run.
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
    /// Enough to clean up after a script and to create the next cell.
    const PAUSE: Duration = Duration::from_millis(30);

    pub(crate) async fn main() {
        let warm = LocalRunner::start(LocalOptions::default()).await.unwrap();
        let cold = LocalOptions { warm: false, ..LocalOptions::default() };
        let cold = LocalRunner::start(cold).await.unwrap();
        println!("sandbox: {}", warm.isolation());
        let program = resolved();
        let mut rounds = Vec::new();
        let mut hurried = Vec::new();
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
            let mut row = Vec::new();
            for _ in 0..RUNS {
                row.push(sandboxed(&warm).await);
            }
            if round > 0 {
                let bare = median(bares);
                rounds.push((bare, median(colds), median(warms)));
                hurried.push(median(row) / bare);
            }
        }
        let all = |select: fn(&(f64, f64, f64)) -> f64| median(rounds.iter().map(select).collect());
        println!("bare python3 -I -S -c 'print(1)': {:.2} ms", all(|round| round.0));
        println!("cold in a sandbox: {:.2} ms, {:.2} x", all(|r| r.1), all(|r| r.1 / r.0));
        println!("warm in a sandbox: {:.2} ms, {:.2} x", all(|r| r.2), all(|r| r.2 / r.0));
        println!("warm, {RUNS} without a pause: {:.2} x", median(hurried));
    }

    /// Returns the interpreter itself: a shim in front of it would slow down the plain one.
    fn resolved() -> String {
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
