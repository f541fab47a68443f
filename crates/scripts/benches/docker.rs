//! The duration of a script in its own container, next to the duration of Docker alone.
//!
//! They alternate in one run; reports the median of each. `cargo xtask docker` starts
//! the daemon and prints what to export.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "its results go to standard output")]

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{DockerOptions, DockerRunner, Script, ScriptRunner};
use rockbot_tools::ToolContext;

const ROUNDS: usize = 10;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let host = std::env::var("ROCKBOT_TEST_DOCKER_HOST").expect("ROCKBOT_TEST_DOCKER_HOST");
    let image = std::env::var("ROCKBOT_TEST_DOCKER_IMAGE").expect("ROCKBOT_TEST_DOCKER_IMAGE");
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    runtime.block_on(async {
        let options = DockerOptions {
            host: Some(host.clone()),
            image: image.clone(),
            ..DockerOptions::default()
        };
        let runner = DockerRunner::start(options).unwrap();
        runner.isolation().await.unwrap();
        for _ in 0..ROUNDS {
            let started = Instant::now();
            run(&runner).await;
            times[0].push(started.elapsed());
            let arguments = ["run", "--rm", "--network", "none", "--entrypoint", "python3"];
            times[1].push(measure(
                Command::new("docker").env("DOCKER_HOST", &host).args(arguments).args([
                    image.as_str(),
                    "-c",
                    "print(1)",
                ]),
            ));
            times[2].push(measure(Command::new("python3").args(["-c", "print(1)"])));
        }
        runner.stop(Duration::from_secs(20)).await;
    });
    for (name, times) in ["the runner", "docker run", "python3 -c"].iter().zip(&mut times) {
        times.sort();
        println!("{name}: {:.1} ms", times[ROUNDS / 2].as_secs_f64() * 1000.0);
    }
}

async fn run(runner: &DockerRunner) {
    let agent = AgentName::new("assistant").unwrap();
    let context = ToolContext::new("execute_python_script", SessionId::generate(), agent);
    let script = Script::new("print(1)").unwrap();
    assert_eq!(runner.run(&script, &context).await.unwrap().stdout, "1\n");
}

fn measure(command: &mut Command) -> Duration {
    let started = Instant::now();
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    started.elapsed()
}
