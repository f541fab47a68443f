//! Inspection: dead letters are read and returned to their queue.

use rockbot_bus::Bus;
use rockbot_contracts::{Envelope, QueueName};

use super::{
    dead_letters::{DeadLetters, Purpose, Selection},
    error::LetterError,
};

/// Inspected dead letters, which were returned to their queue.
#[derive(Debug)]
pub struct Inspection {
    /// The number of dead letters in the queue.
    pub waiting: u32,
    /// The selected dead letters, oldest first.
    pub letters: Vec<Envelope>,
}

/// Reads the selected letters and returns them to their queue. Meanwhile no other reader receives them.
///
/// # Errors
/// See [`LetterError`].
pub async fn inspect(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: Selection<'_>,
) -> Result<Inspection, LetterError> {
    let mut letters = DeadLetters::open(bus, queue, selection, Purpose::Inspect).await?;
    let mut inspection = Inspection { waiting: letters.waiting(), letters: Vec::new() };
    while let Some(letter) = letters.next().await {
        inspection.letters.push(letter.delivery.envelope().clone());
        letters.hold(letter);
    }
    letters.close().await;
    Ok(inspection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letters::dead_letters::tests::{DlqFixture, texts};

    #[tokio::test]
    async fn inspected_letters_stay_in_order() {
        let fixture = DlqFixture::with_letters(5).await;
        for _ in 0..30 {
            let inspection =
                inspect(&fixture.bus, &fixture.queue, Selection::Oldest(3)).await.unwrap();
            assert_eq!(inspection.waiting, 5);
            assert_eq!(texts(&inspection.letters), ["0", "1", "2"]);
        }
        let all = inspect(&fixture.bus, &fixture.queue, Selection::Oldest(20)).await.unwrap();
        assert_eq!(texts(&all.letters), ["0", "1", "2", "3", "4"]);
        assert_eq!(all.letters[0].dead_letter_reason.as_deref(), Some("rejected"));
    }

    #[tokio::test]
    async fn letter_is_found_by_id() {
        let fixture = DlqFixture::with_letters(5).await;
        let ids = [fixture.ids().await.remove(3)];
        let inspection =
            inspect(&fixture.bus, &fixture.queue, Selection::ByIds(&ids)).await.unwrap();
        assert_eq!(texts(&inspection.letters), ["3"]);
        assert_eq!(fixture.texts().await, ["0", "1", "2", "3", "4"]);
    }

    #[tokio::test]
    async fn unknown_id_and_unknown_queue_have_distinct_errors() {
        let fixture = DlqFixture::with_letters(2).await;
        let ids = ["unknown".to_owned()];
        let unknown =
            inspect(&fixture.bus, &fixture.queue, Selection::ByIds(&ids)).await.unwrap_err();
        assert!(matches!(unknown, LetterError::NotFound { searched: 2, .. }), "{unknown:?}");
        assert_eq!(fixture.texts().await, ["0", "1"]);
        let queue = QueueName::new("no.such").unwrap();
        let missing = inspect(&fixture.bus, &queue, Selection::Oldest(1)).await.unwrap_err();
        assert!(matches!(missing, LetterError::NoSuchQueue { .. }), "{missing:?}");
    }
}
