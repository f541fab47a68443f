//! `rockbot doctor`: is the fleet well?

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anstream::println;
use rockbot_bus::{Publication, Settlement, Subscription, report::QueueDepth};
use rockbot_contracts::{
    AgentName, Envelope, QueueName, QueueSpec, RoutingKey,
    topology::{doctor_ping, tool_invoke, user_message},
};
use rockbot_service::exit;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    ending::{Exits, Failure, Outcome},
    fleet::Fleet,
    settings::Settings,
    show,
};

/// Messages sent to oneself to measure the round trip.
const PINGS: usize = 11;

const PING_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(settings: &Settings, json: bool) -> Outcome {
    let fleet = Fleet::reach(settings).await?;
    let outcome = examine(settings, &fleet, json).await;
    fleet.leave().await;
    outcome
}

async fn examine(settings: &Settings, fleet: &Fleet, json: bool) -> Outcome {
    let discovered = fleet.discover_all("doctor").await?;
    let agent = AgentName::new(settings.agent.name.as_str()).exits(exit::USAGE)?;
    let work = [tool_invoke(), user_message(&agent)].map(|key| QueueSpec::work(&key).name);
    let queues: Vec<QueueName> =
        work.into_iter().flat_map(|name| [name.clone(), name.dead_letters()]).collect();
    let report = fleet.bus.inspect(&queues).await.exits(exit::UNAVAILABLE)?;
    let round_trip = round_trip(fleet).await?;
    let handlers = discovered.directory.handlers();
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for handler in &handlers {
        for tool in &handler.tools {
            let server = format!("{}/{}", handler.handler, handler.instance);
            servers.entry(tool.name.clone()).or_default().push(server);
        }
    }
    if json {
        let queues: Vec<_> = report
            .queues
            .iter()
            .map(|queue| {
                json!({"name": queue.name, "exists": queue.depth.is_some(),
                    "ready": queue.depth.map(|depth| depth.ready),
                    "consumers": queue.depth.map(|depth| depth.consumers)})
            })
            .collect();
        let said = json!({"bus": report.product, "queues": queues, "tools": servers,
            "roundTripMicros": round_trip.as_micros()});
        println!("{}", serde_json::to_string_pretty(&said).exits(exit::SOFTWARE)?);
    } else {
        println!("bus         {}", report.product);
        println!("round trip  {} (median of {PINGS})\n", show::duration(round_trip));
        let rows = report.queues.iter().map(|queue| {
            let count = |pick: fn(QueueDepth) -> u32| {
                queue.depth.map_or_else(|| "–".to_owned(), |depth| pick(depth).to_string())
            };
            vec![queue.name.clone(), count(|depth| depth.ready), count(|depth| depth.consumers)]
        });
        println!("{}\n", show::table(&["queue", "waiting", "consumers"], rows));
        let clean = |(tool, by): (&String, &Vec<String>)| {
            vec![show::clean(tool), show::clean(&by.join(", "))]
        };
        let rows = servers.iter().map(clean);
        println!("{}", show::table(&["tool", "served by"], rows));
    }
    if handlers.is_empty() {
        return Err(Failure::unavailable(
            "no handler announced itself; start rockbot-tool-handler on this bus",
        ));
    }
    Ok(exit::OK)
}

/// The median time of a confirmed message to oneself.
async fn round_trip(fleet: &Fleet) -> Result<Duration, Failure> {
    let mut queue = QueueSpec::exclusive(&doctor_ping(), &fleet.instance);
    // A key of its own: another doctor may be at work.
    let key = RoutingKey::new(queue.name.as_str()).exits(exit::SOFTWARE)?;
    queue.bindings = vec![(&key).into()];
    let consuming = fleet.bus.consume(Subscription::new(queue, 1));
    let mut consumer = consuming.await.exits(exit::UNAVAILABLE)?;
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        let ping = async {
            let envelope = Envelope::raw("Ping", b"{}".to_vec()).transient();
            fleet.bus.publish(Publication::mandatory(key.clone(), envelope)).await?;
            if let Some(delivery) = consumer.next().await {
                delivery.settle(Settlement::Ack).await?;
            }
            anyhow::Ok(())
        };
        let late = |_| Failure::unavailable(format!("no round trip within {PING_WITHIN:?}"));
        timeout(PING_WITHIN, ping).await.map_err(late)?.exits(exit::UNAVAILABLE)?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[PINGS / 2])
}
