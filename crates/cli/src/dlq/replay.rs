//! `rockbot dlq replay`: resends dead letters to their work queue.

use anyhow::anyhow;
use rockbot_bus::Bus;
use rockbot_contracts::QueueName;
use rockbot_monitor::letters::{self, MAX_HELD, Replayed, Selection, SenderCheck};
use rockbot_service::exit;
use serde_json::{Value, json};

use super::failure::failure_of;
use crate::{
    arguments::LetterSelection,
    failure::{Failure, Outcome},
    print::{note, outln},
    render,
};

/// Resends the selected letters. `senders` checks them; without, every sender passes.
pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    senders: Option<&SenderCheck>,
    selection: &LetterSelection,
    limit: Option<u32>,
    json: bool,
) -> Outcome {
    let letters = Selection::new(&selection.ids, limit.unwrap_or(u32::MAX));
    let replaying = letters::replay(bus, queue, senders, letters, selection.dry_run);
    let mut replayed = replaying.await.map_err(failure_of)?;
    let failure = match replayed.failure.take() {
        Some(error) => Some(failure_of(error)),
        None if replayed.refused.is_empty() => None,
        None => Some(refused_failure(queue, replayed.refused.len())),
    };
    if json {
        let report = to_json(queue, selection.dry_run, &replayed, failure.as_ref());
        outln!("{}", render::json(&report))?;
    } else {
        print(queue, selection.dry_run, &replayed)?;
    }
    failure.map_or(Ok(exit::OK), Err)
}

fn to_json(
    queue: &QueueName,
    dry_run: bool,
    replayed: &Replayed,
    failure: Option<&Failure>,
) -> Value {
    let Replayed { sent, refused, left, .. } = replayed;
    let sent = sent.iter().map(|(letter, resent)| {
        let sent_as = (!dry_run).then_some(resent.message_id.as_str());
        json!({"messageId": letter.message_id.as_str(), "sentAs": sent_as,
            "correlationId": letter.correlation_id.as_deref(), "type": letter.message_type()})
    });
    let refused = refused.iter().map(|(letter, reason)| {
        json!({"messageId": letter.message_id.as_str(), "user": letter.user_id.as_deref(),
            "source": letter.source.as_deref(), "reason": reason})
    });
    let (sent, refused): (Vec<_>, Vec<_>) = (sent.collect(), refused.collect());
    let error = failure.map(|failure| format!("{:#}", failure.cause));
    json!({"queue": queue.as_str(), "dryRun": dry_run, "replayed": sent, "refused": refused,
        "left": left, "error": error})
}

fn print(queue: &QueueName, dry_run: bool, replayed: &Replayed) -> Result<(), Failure> {
    let Replayed { sent, refused, left, .. } = replayed;
    let rows = sent.iter().map(|(letter, _)| {
        let id = letter.correlation_id.as_deref().unwrap_or("–");
        [letter.message_id.as_str(), letter.message_type(), id].map(render::visible_line).into()
    });
    if !sent.is_empty() {
        outln!("{}\n", render::table(&["message id", "type", "correlation id"], rows))?;
    }
    let rows = refused.iter().map(|(letter, reason)| {
        [letter.message_id.as_str(), reason].map(render::visible_line).into()
    });
    if !refused.is_empty() {
        outln!("{}\n", render::table(&["message id", "not resent, because"], rows))?;
    }
    let verb = if dry_run { "would be resent" } else { "resent" };
    let sent = render::count(sent.len(), "dead letter");
    note!("{sent} {verb} to {queue}, {left} left");
    Ok(())
}

fn refused_failure(queue: &QueueName, refused: usize) -> Failure {
    let letters = render::count(refused, "dead letter");
    let stopped =
        if refused >= usize::from(MAX_HELD) { ", and the replay stopped there" } else { "" };
    let cause = anyhow!(
        "{letters} may be from another sender than the caller that they name{stopped}; inspect them with \
         `rockbot dlq show {queue}`, and remove them with `rockbot dlq purge {queue} --id ID`, or \
         resend them with --any-sender"
    );
    Failure { code: exit::ANSWERED_WITH_ERROR, cause }
}
