//! `rockbot dlq show`: shows dead letters and their reasons.

use std::time::SystemTime;

use rockbot_bus::Bus;
use rockbot_contracts::{Envelope, QueueName, envelope::unix_ms};
use rockbot_monitor::letters::{self, Selection};
use rockbot_service::exit;
use serde_json::{Value, json};

use super::failure::failure_of;
use crate::{failure::Outcome, print::outln, render};

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    limit: u32,
    id: Option<String>,
    body: bool,
    json: bool,
) -> Outcome {
    let ids = Vec::from_iter(id);
    let inspecting = letters::inspect(bus, queue, Selection::new(&ids, limit));
    let inspection = inspecting.await.map_err(failure_of)?;
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
