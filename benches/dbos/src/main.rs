//! Turns of 8 steps in DBOS for Rust: each step records the response of a model and the result of a tool,
//! neither of which does anything.
//!
//! `cargo xtask bench turns` runs it. Argument: the URL of a PostgreSQL database.

#[path = "../../../crates/testkit/src/turn_benchmark.rs"]
mod turn_benchmark;

use std::{error::Error, sync::Arc};

use dbos::{Config, DBOS, WorkflowRef, step};
use turn_benchmark::{STEPS, serve};

const TEXT_BYTES: usize = 500;
/// Connections of the pool, as many as turns run at once.
const CONNECTIONS: u32 = 64;

async fn turn(message: String) -> dbos::Result<String> {
    let mut read = message.len();
    for _ in 0..STEPS {
        let response: String = step("model", || async { Ok("x".repeat(TEXT_BYTES)) }).await?;
        let result: String = step("noop", || async { Ok("done".to_owned()) }).await?;
        read += response.len() + result.len();
    }
    Ok(format!("All done after {read} bytes."))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: dbos-turns URL")?;
    let config = Config {
        app_version: Some("1".to_owned()),
        max_connections: CONNECTIONS,
        ..Config::new("turns", url)
    };
    let dbos = DBOS::new(config);
    let workflow = Arc::new(dbos.register_workflow("turn", turn)?);
    dbos.launch().await?;
    serve(|_| {
        let workflow = workflow.clone();
        move || run_turn(workflow.clone())
    })
    .await;
    dbos.shutdown().await;
    Ok(())
}

async fn run_turn(workflow: Arc<WorkflowRef<String, String>>) {
    let answer = workflow.run("go".to_owned()).await.expect("an answer");
    assert!(answer.starts_with("All done"), "{answer}");
}
