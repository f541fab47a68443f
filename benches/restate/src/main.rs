//! Turns of 8 steps on a Restate server: each step records the response of a model and the result of a tool,
//! neither of which does anything.
//!
//! `cargo xtask bench turns` runs it. Arguments: the URLs of the server's ingress and admin API, and the port
//! for this service. It prints `ready`, then reads measurements from standard input,
//! `VARIANT IN_FLIGHT MILLISECONDS`, and prints for each the steps per second and the times of a turn at p50
//! and p99 in microseconds.

use std::{
    io::BufRead,
    time::{Duration, Instant},
};

use restate_sdk::prelude::*;
use serde_json::json;
use tokio::task::JoinSet;

const STEPS: usize = 8;
const TEXT_BYTES: usize = 500;

type Failure = Box<dyn std::error::Error + Send + Sync>;

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
async fn main() -> Result<(), Failure> {
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
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace().skip(1);
        let mut number =
            || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or("a number");
        let (in_flight, length) = (number()?, Duration::from_millis(number()?));
        let [rate, p50, p99] = measure(&client, &url, in_flight, length).await?;
        println!("{rate:.0} {p50:.0} {p99:.0}");
    }
    Ok(())
}

/// Returns the steps per second, and the times of a turn in microseconds at p50 and p99.
async fn measure(
    client: &reqwest::Client,
    url: &str,
    in_flight: u64,
    length: Duration,
) -> Result<[f64; 3], Failure> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < length {
                let began = Instant::now();
                let response = client.post(&url).json(&"go").send().await?.error_for_status()?;
                let answer: String = response.json().await?;
                if !answer.starts_with("All done") {
                    return Err(Failure::from(answer));
                }
                times.push(began.elapsed());
            }
            Ok(times)
        });
    }
    let mut times = Vec::new();
    for ended in tasks.join_all().await {
        times.extend(ended?);
    }
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times[index.min(times.len() - 1)].as_secs_f64() * 1e6
    };
    Ok([(times.len() * STEPS) as f64 / seconds, at(0.5), at(0.99)])
}
