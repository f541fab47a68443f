//! Output of a running script as progress of its call.

use std::time::Duration;

use rockbot_contracts::outside_text::stripped;
use rockbot_tools::{ToolContext, ToolUpdate, context::UpdateSink};
use tokio::time::{Instant, sleep_until};

use crate::output::complete_length;

/// The time between two updates, and between the first output and its update: the output of a script
/// that ends sooner is its result.
const INTERVAL: Duration = Duration::from_secs(1);
/// The maximum size of the output in one update, which is the end of a longer output.
const MAX_UPDATE_BYTES: usize = 2048;
/// Precedes an update whose beginning was omitted.
const OMITTED: &str = "…";

/// Reports what a script prints to stdout while it runs: at most once a second, and at most the last
/// 2 KiB of what it printed since the previous report. Without observers of the call, nothing is kept.
///
/// The text has no terminal sequences and no hidden characters.
pub struct OutputProgress {
    updates: Option<UpdateSink>,
    unreported: Vec<u8>,
    is_cut: bool,
    last_report: Option<Instant>,
    due: Option<Instant>,
}

impl OutputProgress {
    /// Creates the progress of a call.
    #[must_use]
    pub fn new(context: &ToolContext) -> Self {
        Self { updates: context.updates.clone(), ..Self::disabled() }
    }

    /// Creates a progress that reports nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { updates: None, unreported: Vec::new(), is_cut: false, last_report: None, due: None }
    }

    /// Adds output, which [`report`](Self::report) reports.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.updates.is_none() || bytes.is_empty() {
            return;
        }
        let kept = &bytes[bytes.len().saturating_sub(MAX_UPDATE_BYTES)..];
        let excess = (self.unreported.len() + kept.len()).saturating_sub(MAX_UPDATE_BYTES);
        self.is_cut |= excess > 0 || kept.len() < bytes.len();
        self.unreported.drain(..excess);
        self.unreported.extend_from_slice(kept);
        let now = Instant::now();
        let earliest = self.last_report.unwrap_or(now) + INTERVAL;
        self.due.get_or_insert(earliest.max(now));
    }

    /// Waits until output is due, and reports it. Waits forever without output.
    ///
    /// # Cancellation
    /// Cancel safe: nothing is lost.
    pub async fn report(&mut self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
        (self.due, self.last_report) = (None, Some(Instant::now()));
        let text = self.take_text();
        if let Some(updates) = &self.updates
            && !text.trim().is_empty()
        {
            updates(ToolUpdate::Progress(text));
        }
    }

    /// Takes the unreported output, except for an incomplete character at its end.
    fn take_text(&mut self) -> String {
        let rest = self.unreported.split_off(complete_length(&self.unreported, true));
        let bytes = std::mem::replace(&mut self.unreported, rest);
        let is_cut = std::mem::take(&mut self.is_cut);
        let continues = |byte: &&u8| **byte & 0xC0 == 0x80;
        let partial = if is_cut { bytes.iter().take(3).take_while(continues).count() } else { 0 };
        let text = String::from_utf8_lossy(&bytes[partial..]);
        let text = stripped(text.trim_end());
        if is_cut { format!("{OMITTED}{text}") } else { text.into_owned() }
    }
}

impl std::fmt::Debug for OutputProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputProgress").field("due", &self.due).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rockbot_contracts::{AgentName, SessionId};
    use tokio::time::timeout;

    use super::*;

    /// Updates with their times in milliseconds.
    type Updates = Arc<Mutex<Vec<(u128, String)>>>;

    /// Returns a progress, and the updates that it sends.
    fn observed() -> (OutputProgress, Updates) {
        let agent = AgentName::new("assistant").unwrap();
        let mut context = ToolContext::new("script", SessionId::generate(), agent);
        let updates = Updates::default();
        let (sink, started) = (updates.clone(), Instant::now());
        context.updates = Some(Arc::new(move |update| {
            let ToolUpdate::Progress(text) = update else { return };
            sink.lock().push((started.elapsed().as_millis(), text));
        }));
        (OutputProgress::new(&context), updates)
    }

    /// Reports for some time.
    async fn report_for(progress: &mut OutputProgress, milliseconds: u64) {
        let reports = async {
            loop {
                progress.report().await;
            }
        };
        let _: Result<(), _> = timeout(Duration::from_millis(milliseconds), reports).await;
    }

    #[tokio::test(start_paused = true)]
    async fn output_is_reported_once_a_second() {
        let (mut progress, updates) = observed();
        progress.push(b"one\n");
        report_for(&mut progress, 600).await;
        progress.push(b"two\n");
        report_for(&mut progress, 600).await;
        progress.push(b"three\n");
        report_for(&mut progress, 4000).await;
        progress.push(b"four\n");
        report_for(&mut progress, 1).await;
        let expected = [(1000, "one\ntwo"), (2000, "three"), (5200, "four")];
        let expected = expected.map(|(time, text)| (time, text.to_owned()));
        assert_eq!(*updates.lock(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn update_is_bounded_and_free_of_terminal_sequences() {
        let (mut progress, updates) = observed();
        progress.push("é".repeat(100_000).as_bytes());
        progress.push(b"x\x1b[31mred\x1b[0m\n\xe2\x82");
        report_for(&mut progress, 1500).await;
        progress.push(b"\xac\n");
        report_for(&mut progress, 1500).await;
        let updates = updates.lock();
        let [(_, first), (_, second)] = &updates[..] else { panic!("{updates:?}") };
        assert!(first.starts_with("…é") && first.ends_with("éxred"), "{first}");
        assert!(first.len() <= MAX_UPDATE_BYTES + OMITTED.len(), "{}", first.len());
        assert_eq!(second, "€");
    }

    #[tokio::test(start_paused = true)]
    async fn blank_or_unobserved_output_is_not_reported() {
        let (mut progress, updates) = observed();
        progress.push(b"\n \n");
        report_for(&mut progress, 3000).await;
        assert_eq!(*updates.lock(), []);
        let mut disabled = OutputProgress::disabled();
        disabled.push(b"text");
        assert!(timeout(Duration::from_secs(9), disabled.report()).await.is_err());
    }
}
