//! Recall: context entries that match the user message.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{Timestamp, tz::TimeZone};
use tracing::debug;

use super::collection::{Collection, CollectionItem};
use crate::context::{ContextPart, ContextRequest, ContextSource};

/// Maximum number of entries in one turn.
const MAX_RECALLED: usize = 5;

/// Maximum number of search results examined per turn. Entries already in the conversation are skipped.
const CANDIDATES: usize = 25;

/// Maximum bytes recalled per turn. Must not exceed the budget of the part; otherwise an entry could be
/// cut.
const MAX_BYTES: usize = 4000;

/// Maximum length of the search query, a prefix of the message, in bytes.
const MAX_QUERY_BYTES: usize = 4000;

/// An entry that can be recalled.
pub(super) trait Recallable: CollectionItem {
    /// Heading of the entries.
    const HEADING: &'static str;

    /// Renders an entry on one line.
    fn line(&self, name: &str) -> String;
}

/// Adds the entries that match the message, except those that are still in the model's history. A changed
/// entry counts as new.
pub(super) struct Recall<T> {
    part: ContextPart,
    collection: Arc<Collection<T>>,
}

impl<T: Recallable> Recall<T> {
    pub(super) fn new(part: ContextPart, collection: Arc<Collection<T>>) -> Arc<Self> {
        Arc::new(Self { part, collection })
    }

    async fn recall(&self, request: ContextRequest<'_>) -> Option<String> {
        let entries = match self.collection.entries(request.agent).await {
            Ok(entries) => entries,
            Err(error) => {
                debug!(%error, collection = T::NAME, "recall failed");
                return None;
            }
        };
        let query = &request.message[..request.message.floor_char_boundary(MAX_QUERY_BYTES)];
        let found = entries.search(query, CANDIDATES).await;
        let mut text = T::HEADING.to_owned();
        let mut count = 0;
        for (name, entry) in found {
            let line = entry.value.line(name);
            if text.len() + 1 + line.len() > MAX_BYTES || request.has_line(&line) {
                continue;
            }
            text.push('\n');
            text.push_str(&line);
            count += 1;
            if count == MAX_RECALLED {
                break;
            }
        }
        (count > 0).then_some(text)
    }
}

impl<T: Recallable> ContextSource for Recall<T> {
    fn part(&self) -> ContextPart {
        self.part
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.recall(request))
    }
}

/// Formats the date of a timestamp in UTC.
pub(super) fn utc_date(millis: i64) -> String {
    format_utc(millis, "%Y-%m-%d")
}

/// Formats a timestamp in UTC.
pub(super) fn format_utc(millis: i64, format: &str) -> String {
    let time = Timestamp::from_millisecond(millis).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).strftime(format).to_string()
}
