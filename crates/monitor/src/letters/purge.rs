//! Purge: dead letters are deleted permanently.

use rockbot_bus::{Bus, Settlement};
use rockbot_contracts::QueueName;

use super::{
    dead_letters::{DeadLetters, Purpose, Selection},
    error::LetterError,
};

/// The result of a purge.
#[derive(Debug)]
pub struct Purged {
    /// The message ids of the deleted letters; in a dry run, of those that would be deleted.
    pub deleted: Vec<String>,
    /// The number of dead letters left in the queue.
    pub left: u32,
    /// The error that stopped the purge early.
    pub failure: Option<LetterError>,
}

/// Deletes the selected letters; stops at the first error. A dry run deletes nothing.
///
/// # Errors
/// See [`LetterError`]; nothing was changed then. An error after the first letter is in [`Purged::failure`].
pub async fn purge(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: Selection<'_>,
    dry_run: bool,
) -> Result<Purged, LetterError> {
    let purpose = if dry_run { Purpose::Inspect } else { Purpose::Settle };
    let mut letters = DeadLetters::open(bus, queue, selection, purpose).await?;
    let mut purged = Purged { deleted: Vec::new(), left: letters.waiting(), failure: None };
    while let Some(letter) = letters.next().await {
        let id = letter.delivery.envelope().message_id.to_string();
        if dry_run {
            letters.hold(letter);
        } else if let Err(error) = letter.delivery.settle(Settlement::Ack).await {
            purged.failure = Some(LetterError::Delete { id, source: error });
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
    use crate::letters::dead_letters::tests::DlqFixture;

    #[tokio::test]
    async fn dry_run_deletes_nothing() {
        let fixture = DlqFixture::with_letters(3).await;
        let ids = fixture.ids().await;
        let purged =
            purge(&fixture.bus, &fixture.queue, Selection::Oldest(u32::MAX), true).await.unwrap();
        assert_eq!((purged.deleted, purged.left), (ids, 3));
        assert_eq!(fixture.texts().await, ["0", "1", "2"]);
    }

    #[tokio::test(start_paused = true)]
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
