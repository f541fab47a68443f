//! What an agent thinks of by itself: kept entries that fit what was just said.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use jiff::{Timestamp, tz::TimeZone};
use rockbot_contracts::SessionId;
use tracing::debug;

use super::collection::{Collection, Kept};
use crate::context::{ContextPart, ContextSource, Moment};

/// Most entries that one turn brings to mind.
const MOST: usize = 5;

/// Entries that are looked at for those that the conversation has not seen.
const LOOKED_AT: usize = 25;

/// The longest text of one turn, in bytes: less than the context's budget for it, so that what is
/// marked as seen was told.
const MOST_BYTES: usize = 4000;

/// The longest part of what was said that is searched by, in bytes.
const MOST_SAID: usize = 4000;

/// What comes to mind by itself.
pub(super) trait Recalled: Kept {
    /// What stands before the entries.
    const HEADING: &'static str;

    /// An entry on one line.
    fn line(&self, name: &str) -> String;
}

/// Tells a model the entries that fit what was said, each once in a conversation.
pub(super) struct Recall<T> {
    part: ContextPart,
    kept: Arc<Collection<T>>,
    /// Names and versions that a conversation has seen: what changed is new.
    seen: Mutex<HashMap<SessionId, HashSet<(String, i64)>>>,
}

impl<T: Recalled> Recall<T> {
    pub(super) fn new(part: ContextPart, kept: Arc<Collection<T>>) -> Arc<Self> {
        Arc::new(Self { part, kept, seen: Mutex::default() })
    }

    async fn recall(&self, moment: Moment<'_>) -> Option<String> {
        let entries = match self.kept.entries(moment.agent).await {
            Ok(entries) => entries,
            Err(error) => {
                debug!(%error, what = T::NAME, "out of reach");
                return None;
            }
        };
        let said = &moment.said[..moment.said.floor_char_boundary(MOST_SAID)];
        let fitting = entries.fitting(said, LOOKED_AT).await;
        let mut seen = self.seen();
        let seen = seen.entry(moment.session.clone()).or_default();
        let mut text = T::HEADING.to_owned();
        let mut told = 0;
        for (name, entry) in fitting {
            let mark = (name.clone(), entry.version.number());
            let line = entry.value.line(name);
            if seen.contains(&mark) || text.len() + 1 + line.len() > MOST_BYTES {
                continue;
            }
            seen.insert(mark);
            text.push('\n');
            text.push_str(&line);
            told += 1;
            if told == MOST {
                break;
            }
        }
        (told > 0).then_some(text)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<SessionId, HashSet<(String, i64)>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Recalled> ContextSource for Recall<T> {
    fn part(&self) -> ContextPart {
        self.part
    }

    fn text<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.recall(moment))
    }

    fn forget(&self, session: &SessionId) {
        self.seen().remove(session);
    }
}

/// The day of a moment, in UTC.
pub(super) fn day(millis: i64) -> String {
    moment(millis, "%Y-%m-%d")
}

/// A moment in UTC, as `format` says.
pub(super) fn moment(millis: i64, format: &str) -> String {
    let moment = Timestamp::from_millisecond(millis).unwrap_or_default();
    moment.to_zoned(TimeZone::UTC).strftime(format).to_string()
}
