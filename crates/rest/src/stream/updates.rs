//! Partial results of a stream.

use std::time::Duration;

use rockbot_contracts::outside_text;
use rockbot_tools::{ToolContext, ToolResult};
use tokio::time::Instant;

use crate::secrets::Secrets;

/// Minimum time between partial results.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum length of a partial result, in bytes: the end of the text.
const MAX_BYTES: usize = 3 * 1024;

/// Sends partial results to the observers of a call: the first at once, then at most ten a second.
pub(crate) struct Updates<'a> {
    context: &'a ToolContext,
    secrets: &'a [&'a Secrets],
    sent: Option<Instant>,
}

impl<'a> Updates<'a> {
    /// Creates the updates of a call, without `secrets`.
    pub(crate) fn new(context: &'a ToolContext, secrets: &'a [&'a Secrets]) -> Self {
        Self { context, secrets, sent: None }
    }

    /// Sends the text so far, unless the last update was a moment ago.
    pub(super) fn offer(&mut self, text: &str) {
        let now = Instant::now();
        let is_early = self.sent.is_some_and(|sent| now - sent < INTERVAL);
        if is_early || self.context.updates.is_none() {
            return;
        }
        // Hidden characters could separate the parts of a secret.
        let text = &*outside_text::stripped(text);
        let beginning = |text: &str, secrets: &&Secrets| secrets.without_beginning(text).len();
        let shown = self.secrets.iter().map(|secrets| beginning(text, secrets)).min();
        let shown = &text[..shown.unwrap_or(text.len())];
        if shown.is_empty() {
            return;
        }
        let redacted = self
            .secrets
            .iter()
            .fold(shown.to_owned(), |text, secrets| secrets.redact(&text).into_owned());
        self.sent = Some(now);
        self.context.partial(ToolResult::text(end_of(&redacted)));
    }
}

fn end_of(text: &str) -> String {
    match text.len().checked_sub(MAX_BYTES) {
        None | Some(0) => text.to_owned(),
        Some(from) => format!("…{}", &text[text.ceil_char_boundary(from)..]),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_tools::ToolUpdate;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn updates_are_redacted_and_limited() {
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let agent = AgentName::new("assistant").unwrap();
        let mut context = ToolContext::new("stream", SessionId::generate(), agent);
        let sink = sent.clone();
        context.updates = Some(Arc::new(move |update| {
            if let ToolUpdate::Partial(result) = update {
                sink.lock().push(result.to_text().into_owned());
            }
        }));
        let secrets = Secrets::new(["hunter2hunter2".to_owned()]);
        let secrets = [&secrets];
        let mut updates = Updates::new(&context, &secrets);
        updates.offer("hunter2");
        updates.offer("x");
        updates.offer("xy");
        tokio::time::advance(INTERVAL).await;
        updates.offer("xy hunter2hun\u{200b}ter2 hun");
        tokio::time::advance(INTERVAL).await;
        updates.offer(&"é".repeat(MAX_BYTES));
        let sent = sent.lock();
        assert_eq!(sent[..2], ["x", "xy [secret] "]);
        assert!(sent.len() == 3 && sent[2].len() <= MAX_BYTES + 4 && sent[2].starts_with('…'));
    }
}
