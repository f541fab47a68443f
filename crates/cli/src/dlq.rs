//! `rockbot dlq`: inspects, replays and purges dead letters.

mod failure;
mod purge;
mod replay;
mod show;

use rockbot_bus::{Bus, QueueState, report::QueueDepth};
use rockbot_contracts::{QueueName, identity::User};
use rockbot_monitor::{
    WorkQueue,
    letters::{LetterError, SenderCheck},
};
use rockbot_service::exit;
use serde_json::json;

use self::failure::failure_of;
use crate::{
    arguments::Dlq,
    completion::names::Names,
    confirm::require_confirmation,
    failure::{Failure, Outcome},
    fleet::Fleet,
    print::{note, outln},
    render::{json as to_pretty, table},
    settings::Settings,
    work_queues,
};

pub(crate) async fn run(settings: &Settings, command: Dlq, json: bool) -> Outcome {
    // Validated before anything starts.
    let names = match &command {
        Dlq::List { queues } if queues.is_empty() => {
            work_queues::configured(settings, &work_queues::pools(settings, Vec::new()))?
        }
        Dlq::List { queues } => {
            let parsed = queues.iter().map(|queue| work_queues::parse_name(queue, settings));
            parsed.collect::<Result<_, _>>()?
        }
        Dlq::Show { queue, .. } | Dlq::Replay { queue, .. } | Dlq::Purge { queue, .. } => {
            vec![work_queues::parse_name(queue, settings)?]
        }
    };
    if let Dlq::Purge { selection, yes, .. } = &command {
        require_confirmation(*yes || selection.dry_run, ", or --dry-run to preview")?;
    }
    let fleet = Fleet::open(settings).await?;
    let namespace = &settings.bus.namespace;
    let outcome = dispatch(&fleet, namespace, &names, command, json).await;
    fleet.close().await;
    outcome
}

async fn dispatch(
    fleet: &Fleet,
    namespace: &str,
    names: &[QueueName],
    command: Dlq,
    json: bool,
) -> Outcome {
    let bus = fleet.bus.as_ref();
    match (command, names) {
        (Dlq::Show { limit, id, body, .. }, [queue]) => {
            show::run(bus, queue, limit, id, body, json).await
        }
        (Dlq::Replay { selection, limit, any_sender, .. }, [queue]) => {
            let senders = SenderCheck::new(queue, namespace, fleet.user());
            let senders = (!any_sender).then_some(&senders);
            replay::run(bus, queue, senders, &selection, limit, json).await
        }
        (Dlq::Purge { selection, yes, .. }, [queue]) => {
            purge::run(bus, queue, &selection, yes, json).await
        }
        (Dlq::List { queues }, names) => {
            list(bus, namespace, names, !queues.is_empty(), json).await
        }
        (_, _) => Err(Failure::usage("expected one queue name")),
    }
}

/// Lists the queues; fails when one is missing and `must_exist` is set.
async fn list(
    bus: &dyn Bus,
    namespace: &str,
    names: &[QueueName],
    must_exist: bool,
    json: bool,
) -> Outcome {
    let (_, queues) = work_queues::inspect(bus, names).await?;
    let existing = queues.iter().filter(|queue| queue.state != QueueState::Missing);
    let names = existing.map(|queue| queue.name.to_string()).collect();
    Names { queues: names, ..Names::default() }.keep();
    if json {
        outln!("{}", to_pretty(&queues.iter().map(to_json).collect()))?;
    } else {
        outln!("{}", table(&HEADINGS, queues.iter().map(row)))?;
        if queues.iter().any(WorkQueue::is_operators) {
            let operator = User::Operator.name(namespace);
            note!("? this user may not inspect the queue; use the broker user {operator}");
        }
    }
    match queues.iter().find(|queue| queue.dead_letters == QueueState::Missing) {
        Some(missing) if must_exist => {
            Err(failure_of(LetterError::NoSuchQueue { queue: missing.name.clone() }))
        }
        _ => Ok(exit::OK),
    }
}

/// The headings of [`row`].
pub(crate) const HEADINGS: [&str; 4] = ["queue", "waiting", "consumers", "dead letters"];

/// Formats a work queue as a table row.
pub(crate) fn row(queue: &WorkQueue) -> Vec<String> {
    let text = |state: QueueState, pick: fn(QueueDepth) -> u32| match state {
        QueueState::Present(depth) => pick(depth).to_string(),
        QueueState::Missing => "–".to_owned(),
        QueueState::Refused => "?".to_owned(),
    };
    vec![
        queue.name.to_string(),
        text(queue.state, |depth| depth.ready),
        text(queue.state, |depth| depth.consumers),
        text(queue.dead_letters, |depth| depth.ready),
    ]
}

/// Formats a work queue as JSON.
pub(crate) fn to_json(queue: &WorkQueue) -> serde_json::Value {
    let depth = queue.state.depth();
    // Unknown when the user may not inspect the queue.
    let exists = (queue.state != QueueState::Refused).then_some(depth.is_some());
    json!({"name": queue.name.as_str(), "exists": exists,
        "ready": depth.map(|depth| depth.ready),
        "consumers": depth.map(|depth| depth.consumers),
        "deadLetters": queue.dead_letters.depth().map(|depth| depth.ready)})
}
