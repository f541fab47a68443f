//! `rockbot dlq`: what work queues gave up.

mod letters;
mod purge;
mod replay;
mod show;

use rockbot_bus::{Bus, Look, report::QueueDepth};
use rockbot_contracts::QueueName;
use rockbot_service::exit;
use serde_json::json;

use crate::{
    arguments::Dlq,
    ending::{Failure, Outcome},
    fleet::Fleet,
    print::say,
    settings::Settings,
    show::{json as shown, table},
    work_queues::{self, WorkQueue},
};

pub(crate) async fn run(settings: &Settings, command: Dlq, json: bool) -> Outcome {
    // Checked before anything starts: a typo costs nothing.
    let names = match &command {
        Dlq::List { queues } if queues.is_empty() => work_queues::known(settings)?,
        Dlq::List { queues } => {
            let named = queues.iter().map(|queue| work_queues::named(queue, settings));
            named.collect::<Result<_, _>>()?
        }
        Dlq::Show { queue, .. } | Dlq::Replay { queue, .. } | Dlq::Purge { queue, .. } => {
            vec![work_queues::named(queue, settings)?]
        }
    };
    if let Dlq::Purge { which, yes, .. } = &command {
        purge::check_that_one_may(*yes || which.dry_run)?;
    }
    let fleet = Fleet::reach(settings).await?;
    let outcome = carry_out(fleet.bus.as_ref(), &names, command, json).await;
    fleet.leave().await;
    outcome
}

async fn carry_out(bus: &dyn Bus, names: &[QueueName], command: Dlq, json: bool) -> Outcome {
    match (command, names) {
        (Dlq::Show { limit, id, body, .. }, [queue]) => {
            show::run(bus, queue, limit, id, body, json).await
        }
        (Dlq::Replay { which, limit, .. }, [queue]) => {
            replay::run(bus, queue, &which, limit, json).await
        }
        (Dlq::Purge { which, yes, .. }, [queue]) => purge::run(bus, queue, &which, yes, json).await,
        (Dlq::List { queues }, names) => list(bus, names, !queues.is_empty(), json).await,
        (_, _) => Err(Failure::usage("name one queue")),
    }
}

/// Lists the queues; those that were named must exist.
async fn list(bus: &dyn Bus, names: &[QueueName], must_exist: bool, json: bool) -> Outcome {
    let (_, queues) = work_queues::look(bus, names).await?;
    if json {
        say!("{}", shown(&queues.iter().map(to_json).collect()))?;
    } else {
        say!("{}", table(&HEADS, queues.iter().map(row)))?;
    }
    match queues.iter().find(|queue| queue.dead_letters == Look::Missing) {
        Some(missing) if must_exist => Err(letters::no_such_queue(&missing.name)),
        _ => Ok(exit::OK),
    }
}

/// The heads of [`row`].
pub(crate) const HEADS: [&str; 4] = ["queue", "waiting", "consumers", "dead letters"];

/// A work queue as a row of a table.
pub(crate) fn row(queue: &WorkQueue) -> Vec<String> {
    let text = |look: Look, pick: fn(QueueDepth) -> u32| match look {
        Look::There(depth) => pick(depth).to_string(),
        Look::Missing => "–".to_owned(),
        Look::Refused => "?".to_owned(),
    };
    vec![
        queue.name.to_string(),
        text(queue.look, |depth| depth.ready),
        text(queue.look, |depth| depth.consumers),
        text(queue.dead_letters, |depth| depth.ready),
    ]
}

/// A work queue for machines.
pub(crate) fn to_json(queue: &WorkQueue) -> serde_json::Value {
    let depth = queue.look.depth();
    // Nobody knows of one that may not be looked at.
    let exists = (queue.look != Look::Refused).then_some(depth.is_some());
    json!({"name": queue.name.as_str(), "exists": exists,
        "ready": depth.map(|depth| depth.ready),
        "consumers": depth.map(|depth| depth.consumers),
        "deadLetters": queue.dead_letters.depth().map(|depth| depth.ready)})
}
