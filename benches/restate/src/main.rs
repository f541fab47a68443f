//! Turns of 8 steps on a Restate server: each step records the response of a model and the result of a tool,
//! neither of which does anything.
//!
//! `cargo xtask bench turns` runs it. Arguments: the URLs of the server's ingress and admin API, and the port
//! for this service.

#[path = "../../../crates/testkit/src/turn_benchmark.rs"]
mod turn_benchmark;

use std::error::Error;

use restate_sdk::prelude::*;
use serde_json::json;
use turn_benchmark::{STEPS, serve};

const TEXT_BYTES: usize = 500;

struct Agent;

#[service]
impl Agent {
    #[handler]
    async fn turn(&self, context: Context<'_>, message: String) -> Result<String, HandlerError> {
        let mut read = message.len();
        for _ in 0..STEPS {
            let response: String =
                context.run(|| async { Ok("x".repeat(TEXT_BYTES)) }).name("model").await?;
            let result: String =
                context.run(|| async { Ok("done".to_owned()) }).name("noop").await?;
            read += response.len() + result.len();
        }
        Ok(format!("All done after {read} bytes."))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().ok_or("usage: restate-turns INGRESS ADMIN PORT");
    let (ingress, admin, port) = (argument()?, argument()?, argument()?);
    let address = format!("127.0.0.1:{port}").parse()?;
    let endpoint = Endpoint::builder().bind(Agent).build();
    tokio::spawn(HttpServer::new(endpoint).listen_and_serve(address));
    let client = reqwest::Client::new();
    let deployment = json!({"uri": format!("http://127.0.0.1:{port}"), "force": true});
    let registered = client.post(format!("{admin}/deployments")).json(&deployment).send().await?;
    registered.error_for_status()?;
    let url = format!("{ingress}/Agent/turn");
    serve(|_| {
        let (client, url) = (client.clone(), url.clone());
        move || run_turn(client.clone(), url.clone())
    })
    .await;
    Ok(())
}

async fn run_turn(client: reqwest::Client, url: String) {
    let sent = client.post(url).json(&"go").send().await.and_then(|sent| sent.error_for_status());
    let answer: String = sent.expect("a response").json().await.expect("an answer");
    assert!(answer.starts_with("All done"), "{answer}");
}
