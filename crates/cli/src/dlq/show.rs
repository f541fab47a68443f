//! `rockbot dlq show`: shows dead letters and their reasons.

use std::time::SystemTime;

use rockbot_bus::Bus;
use rockbot_contracts::{Envelope, QueueName, envelope::unix_ms};
use rockbot_service::exit;
use serde_json::{Value, json};

use super::dead_letters::{DeadLetters, Purpose, Selection};
use crate::{
    failure::{Failure, Outcome},
    print::outln,
    render,
};

/// Inspected dead letters, which were returned to their queue.
#[derive(Debug)]
pub(super) struct Inspection {
    /// The number of dead letters in the queue.
    pub(super) waiting: u32,
    /// The selected dead letters, oldest first.
    pub(super) letters: Vec<Envelope>,
}

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    limit: u32,
    id: Option<String>,
    body: bool,
    json: bool,
) -> Outcome {
    let ids = Vec::from_iter(id);
    let inspection = inspect(bus, queue, Selection::new(&ids, limit)).await?;
    if json {
        let letters: Vec<_> =
            inspection.letters.iter().map(|letter| to_json(letter, body)).collect();
        let report =
            json!({"queue": queue.as_str(), "waiting": inspection.waiting, "letters": letters});
        outln!("{}", render::json(&report))?;
        return Ok(exit::OK);
    }
    let waiting = render::count(inspection.waiting as usize, "dead letter");
    outln!("{queue}: {waiting}, {} shown", inspection.letters.len())?;
    let now = unix_ms(SystemTime::now()) / 1000;
    for letter in &inspection.letters {
        outln!("\n{}", to_text(letter, now))?;
        if body {
            outln!("{}", render::visible(&String::from_utf8_lossy(&letter.body)))?;
        }
    }
    Ok(exit::OK)
}

/// Reads the selected letters and returns them to their queue.
pub(super) async fn inspect(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: Selection<'_>,
) -> Result<Inspection, Failure> {
    let mut letters = DeadLetters::open(bus, queue, selection, Purpose::Inspect).await?;
    let mut inspection = Inspection { waiting: letters.waiting(), letters: Vec::new() };
    while let Some(letter) = letters.next().await {
        inspection.letters.push(letter.delivery.envelope().clone());
        letters.hold(letter);
    }
    letters.close().await;
    Ok(inspection)
}

fn to_json(letter: &Envelope, body: bool) -> Value {
    let mut report = json!({
        "messageId": letter.message_id.as_str(),
        "type": letter.message_type(),
        "correlationId": letter.correlation_id.as_deref(),
        "source": letter.source.as_deref(),
        "user": letter.user_id.as_deref(),
        "replyTo": letter.reply_to,
        "timestamp": letter.timestamp,
        "attempt": letter.attempt,
        "reason": letter.dead_letter_reason.as_deref(),
        "bytes": letter.body.len(),
    });
    if body {
        report["body"] = String::from_utf8_lossy(&letter.body).into();
    }
    report
}

/// Formats a dead letter. All of its content is untrusted.
fn to_text(letter: &Envelope, now: u64) -> String {
    let or_dash = |text: &Option<_>| text.clone().unwrap_or_else(|| "–".into());
    let when = match letter.timestamp {
        0 => "–".to_owned(),
        timestamp => render::ago(timestamp, now),
    };
    // Empty when the sender omitted it.
    let user = letter.user_id.as_deref().filter(|user| !user.is_empty()).unwrap_or("–");
    let sent = format!("{when}, attempt {}, by {}", letter.attempt, or_dash(&letter.source));
    let reason = or_dash(&letter.dead_letter_reason);
    let kind = format!("{}, {}", letter.message_type(), render::size(letter.body.len() as u64));
    let rows = [
        ("message id", letter.message_id.as_str()),
        ("type", &kind),
        ("correlation id", &or_dash(&letter.correlation_id)),
        ("sent", &sent),
        ("broker user", user),
        ("reason", &reason),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), render::visible_line(value)]);
    render::table(&["", ""], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlq::dead_letters::tests::{DlqFixture, texts};

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
    async fn unknown_id_and_unknown_queue_have_distinct_exit_codes() {
        let fixture = DlqFixture::with_letters(2).await;
        let ids = ["unknown".to_owned()];
        let unknown =
            inspect(&fixture.bus, &fixture.queue, Selection::ByIds(&ids)).await.unwrap_err();
        assert_eq!(unknown.code, exit::ANSWERED_WITH_ERROR);
        assert_eq!(fixture.texts().await, ["0", "1"]);
        let queue = QueueName::new("no.such").unwrap();
        let missing = inspect(&fixture.bus, &queue, Selection::Oldest(1)).await.unwrap_err();
        assert_eq!(missing.code, exit::UNAVAILABLE);
    }

    #[test]
    fn untrusted_text_is_escaped() {
        let hostile = "\u{1b}[2J\u{202e}\nx";
        let mut letter =
            Envelope::raw("Text", Vec::new()).with_source(hostile).with_correlation_id(hostile);
        letter.dead_letter_reason = Some(hostile.into());
        letter.user_id = Some(hostile.into());
        let text = to_text(&letter, letter.timestamp);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert_eq!(text.matches(r"\u{1b}[2J\u{202e}\nx").count(), 4, "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
    }
}
