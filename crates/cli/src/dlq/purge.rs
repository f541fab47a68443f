//! `rockbot dlq purge`: deletes dead letters permanently.

use anyhow::anyhow;
use rockbot_bus::{Bus, Settlement};
use rockbot_contracts::QueueName;
use rockbot_service::exit;
use serde_json::json;

use super::dead_letters::{DeadLetters, Purpose, Selection, count};
use crate::{
    arguments::LetterSelection,
    confirm::confirm,
    failure::{Failure, Outcome},
    print::{note, outln},
    render,
};

/// The result of a purge.
#[derive(Debug)]
pub(super) struct Purged {
    /// The message ids of the deleted letters; in a dry run, of those that would be deleted.
    pub(super) deleted: Vec<String>,
    /// The number of dead letters left in the queue.
    pub(super) left: u32,
    /// The error that stopped the purge early.
    pub(super) failure: Option<Failure>,
}

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: &LetterSelection,
    yes: bool,
    json: bool,
) -> Outcome {
    let waiting = count(bus, queue).await?;
    let number = if selection.ids.is_empty() { waiting as usize } else { selection.ids.len() };
    let letters = render::count(number, "dead letter");
    let prompts = !yes && !selection.dry_run && number > 0;
    if prompts && !confirm(format!("Delete {letters} of {queue} permanently? [y/N] ")).await? {
        note!("nothing was deleted");
        return Ok(exit::OK);
    }
    // No more than counted: letters that arrived later were not confirmed.
    let letters = Selection::new(&selection.ids, waiting);
    let Purged { deleted, left, failure } = purge(bus, queue, letters, selection.dry_run).await?;
    if json {
        let error = failure.as_ref().map(|failure| format!("{:#}", failure.cause));
        let report = json!({"queue": queue.as_str(), "dryRun": selection.dry_run,
            "deleted": deleted, "left": left, "error": error});
        outln!("{}", render::json(&report))?;
    } else {
        let verb = if selection.dry_run { "would be deleted" } else { "deleted" };
        outln!("{} of {queue} {verb}, {left} left", render::count(deleted.len(), "dead letter"))?;
    }
    failure.map_or(Ok(exit::OK), Err)
}

/// Deletes the selected letters; stops at the first error.
pub(super) async fn purge(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: Selection<'_>,
    dry_run: bool,
) -> Result<Purged, Failure> {
    let purpose = if dry_run { Purpose::Inspect } else { Purpose::Settle };
    let mut letters = DeadLetters::open(bus, queue, selection, purpose).await?;
    let mut purged = Purged { deleted: Vec::new(), left: letters.waiting(), failure: None };
    while let Some(letter) = letters.next().await {
        let id = letter.delivery.envelope().message_id.to_string();
        if dry_run {
            letters.hold(letter);
        } else if let Err(error) = letter.delivery.settle(Settlement::Ack).await {
            let cause = anyhow!(error).context(format!("cannot delete dead letter {id}"));
            purged.failure = Some(Failure { code: exit::UNAVAILABLE, cause });
            break;
        } else {
            purged.left -= 1;
        }
        purged.deleted.push(id);
    }
    letters.close().await;
    Ok(purged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlq::dead_letters::tests::DlqFixture;

    #[tokio::test]
    async fn dry_run_deletes_nothing() {
        let fixture = DlqFixture::with_letters(3).await;
        let ids = fixture.ids().await;
        let purged =
            purge(&fixture.bus, &fixture.queue, Selection::Oldest(u32::MAX), true).await.unwrap();
        assert_eq!((purged.deleted, purged.left), (ids, 3));
        assert_eq!(fixture.texts().await, ["0", "1", "2"]);
    }

    #[tokio::test]
    async fn purge_deletes_only_selected_letters() {
        let mut fixture = DlqFixture::with_letters(4).await;
        let selected = [fixture.ids().await.remove(2)];
        let purged =
            purge(&fixture.bus, &fixture.queue, Selection::ByIds(&selected), false).await.unwrap();
        assert_eq!((purged.deleted.as_slice(), purged.left), (&selected[..], 3));
        assert_eq!(fixture.texts().await, ["0", "1", "3"]);
        purge(&fixture.bus, &fixture.queue, Selection::Oldest(u32::MAX), false).await.unwrap();
        assert!(fixture.texts().await.is_empty());
        assert!(fixture.drain_work_queue().await.is_empty(), "no message was published");
    }
}
