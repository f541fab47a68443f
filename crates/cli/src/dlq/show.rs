//! `rockbot dlq show`: what the dead letters are, and why.

use std::time::SystemTime;

use rockbot_bus::Bus;
use rockbot_contracts::{
    Envelope, QueueName,
    envelope::unix_ms,
    topology::{DELIVERED_TOO_OFTEN, MAX_DELIVERIES},
};
use rockbot_service::exit;
use serde_json::{Value, json};

use super::letters::{Choice, Letters, Purpose};
use crate::{
    ending::{Failure, Outcome},
    print::say,
    show,
};

/// What was seen; the letters are back in their queue.
#[derive(Debug)]
pub(super) struct Seen {
    /// How many wait in all.
    pub(super) waiting: u32,
    /// The chosen ones, the oldest first.
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
    let seen = look(bus, queue, Choice::of(&ids, limit)).await?;
    if json {
        let letters: Vec<_> = seen.letters.iter().map(|letter| to_json(letter, body)).collect();
        let said = json!({"queue": queue.as_str(), "waiting": seen.waiting, "letters": letters});
        say!("{}", show::json(&said))?;
        return Ok(exit::OK);
    }
    let waiting = show::count(seen.waiting as usize, "dead letter");
    say!("{queue}: {waiting}, {} shown", seen.letters.len())?;
    let now = unix_ms(SystemTime::now()) / 1000;
    for letter in &seen.letters {
        say!("\n{}", to_text(letter, now))?;
        if body {
            say!("{}", show::visible(&String::from_utf8_lossy(&letter.body)))?;
        }
    }
    Ok(exit::OK)
}

/// Looks at the chosen letters and puts them back.
pub(super) async fn look(
    bus: &dyn Bus,
    queue: &QueueName,
    choice: Choice<'_>,
) -> Result<Seen, Failure> {
    let mut letters = Letters::open(bus, queue, choice, Purpose::Look).await?;
    let mut seen = Seen { waiting: letters.waiting(), letters: Vec::new() };
    while let Some(letter) = letters.next().await {
        seen.letters.push(letter.delivery.envelope().clone());
        letters.keep(letter);
    }
    letters.close().await;
    Ok(seen)
}

/// How often it was delivered, where the reason tells.
fn deliveries(letter: &Envelope) -> Option<u32> {
    (letter.dead_letter_reason.as_deref() == Some(DELIVERED_TOO_OFTEN)).then_some(MAX_DELIVERIES)
}

fn to_json(letter: &Envelope, body: bool) -> Value {
    let mut said = json!({
        "messageId": letter.message_id.as_str(),
        "type": letter.message_type(),
        "correlationId": letter.correlation_id.as_deref(),
        "source": letter.source.as_deref(),
        "replyTo": letter.reply_to,
        "timestamp": letter.timestamp,
        "attempt": letter.attempt,
        "deliveries": deliveries(letter),
        "reason": letter.dead_letter_reason.as_deref(),
        "bytes": letter.body.len(),
    });
    if body {
        said["body"] = String::from_utf8_lossy(&letter.body).into();
    }
    said
}

/// Everything in it may be of a stranger.
fn to_text(letter: &Envelope, now: u64) -> String {
    let or_dash = |text: &Option<_>| text.clone().unwrap_or_else(|| "–".into());
    let when = match letter.timestamp {
        0 => "–".to_owned(),
        timestamp => show::ago(timestamp, now),
    };
    let asked = show::count(letter.attempt as usize, "time");
    let sent = format!("{when}, {asked}, by {}", or_dash(&letter.source));
    let mut reason = or_dash(&letter.dead_letter_reason).to_string();
    if let Some(deliveries) = deliveries(letter) {
        reason.push_str(&format!(": {deliveries} times"));
    }
    let what = format!("{}, {}", letter.message_type(), show::size(letter.body.len() as u64));
    let rows = [
        ("message id", letter.message_id.as_str()),
        ("what", &what),
        ("correlation id", &or_dash(&letter.correlation_id)),
        ("sent", &sent),
        ("reason", &reason),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), show::visible_line(value)]);
    show::table(&["", ""], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlq::letters::tests::{Bin, texts};

    #[tokio::test]
    async fn letters_are_seen_in_their_order_and_stay() {
        let bin = Bin::with(5).await;
        for _ in 0..30 {
            let seen = look(&bin.bus, &bin.queue, Choice::Oldest(3)).await.unwrap();
            assert_eq!(seen.waiting, 5);
            assert_eq!(texts(&seen.letters), ["0", "1", "2"]);
        }
        let all = look(&bin.bus, &bin.queue, Choice::Oldest(20)).await.unwrap();
        assert_eq!(texts(&all.letters), ["0", "1", "2", "3", "4"]);
        assert_eq!(all.letters[0].dead_letter_reason.as_deref(), Some("no good"));
    }

    #[tokio::test]
    async fn one_is_found_by_its_id() {
        let bin = Bin::with(5).await;
        let ids = [bin.ids().await.remove(3)];
        let seen = look(&bin.bus, &bin.queue, Choice::ByIds(&ids)).await.unwrap();
        assert_eq!(texts(&seen.letters), ["3"]);
        assert_eq!(bin.texts().await, ["0", "1", "2", "3", "4"]);
    }

    #[tokio::test]
    async fn an_unknown_id_and_an_unknown_queue_are_told_apart() {
        let bin = Bin::with(2).await;
        let ids = ["nobody".to_owned()];
        let unknown = look(&bin.bus, &bin.queue, Choice::ByIds(&ids)).await.unwrap_err();
        assert_eq!(unknown.code, exit::ANSWERED_WITH_ERROR);
        assert_eq!(bin.texts().await, ["0", "1"]);
        let queue = QueueName::new("no.such").unwrap();
        let missing = look(&bin.bus, &queue, Choice::Oldest(1)).await.unwrap_err();
        assert_eq!(missing.code, exit::UNAVAILABLE);
    }

    #[test]
    fn what_a_stranger_wrote_is_shown_and_does_nothing() {
        let hostile = "\u{1b}[2J\u{202e}\nx";
        let mut letter = Envelope::raw("Text", Vec::new()).from_source(hostile).correlated(hostile);
        letter.dead_letter_reason = Some(hostile.into());
        let text = to_text(&letter, letter.timestamp);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert_eq!(text.matches(r"\u{1b}[2J\u{202e}\nx").count(), 3, "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn a_letter_that_came_too_often_says_how_often() {
        let mut letter = Envelope::raw("Text", Vec::new());
        assert_eq!(to_json(&letter, false)["deliveries"], Value::Null);
        letter.dead_letter_reason = Some(DELIVERED_TOO_OFTEN.into());
        assert_eq!(to_json(&letter, false)["deliveries"], 5);
        assert!(to_text(&letter, 0).contains("delivered too often: 5 times"));
    }
}
