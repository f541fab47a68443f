//! Reads announcements of handlers without calling their tools.

use std::{sync::Arc, time::SystemTime};

use rockbot_contracts::{Envelope, ToolCatalog, envelope::unix_ms, json::Limits};
use tracing::warn;

use super::{handler_list::HandlerList, snapshot::CatalogSnapshot, tool_owners::ToolOwners};

/// The handlers that announced themselves, for observers that call no tools. Its size is bounded as that of a
/// [`CatalogDirectory`](super::CatalogDirectory).
#[derive(Debug, Default)]
pub struct CatalogObserver {
    handlers: HandlerList,
    owners: Arc<ToolOwners>,
}

impl CatalogObserver {
    /// Applies an announcement. One that cannot be read, or that its sender may not make, is ignored.
    pub fn observe(&mut self, announcement: &Envelope) {
        if let Some(announcement) = Announcement::read(announcement) {
            self.update(Some(announcement));
        }
    }

    /// Removes the handlers without heartbeats, and returns the live ones.
    pub fn snapshot(&mut self) -> CatalogSnapshot {
        self.update(None);
        self.current()
    }

    /// Applies an announcement, or removes the handlers without heartbeats. Returns whether handlers, tools or
    /// instructions changed.
    pub(super) fn update(&mut self, announcement: Option<Announcement>) -> bool {
        let changed = match announcement {
            Some(Announcement { catalog, user, clock_ahead_seconds, bytes }) => {
                self.handlers.apply(catalog, user.as_deref(), clock_ahead_seconds, bytes)
            }
            None => self.handlers.remove_expired(),
        };
        if changed {
            Arc::make_mut(&mut self.owners).update(&self.handlers);
        }
        changed
    }

    /// Returns the handlers and owners of the last update.
    pub(super) fn current(&self) -> CatalogSnapshot {
        CatalogSnapshot::new(self.handlers.clone(), self.owners.clone())
    }
}

/// A received announcement.
pub(super) struct Announcement {
    catalog: ToolCatalog,
    user: Option<Box<str>>,
    clock_ahead_seconds: i64,
    /// Size of its body.
    bytes: usize,
}

impl Announcement {
    pub(super) fn read(envelope: &Envelope) -> Option<Self> {
        let clock_ahead_seconds = clock_ahead_seconds(envelope);
        match envelope.decode(Limits::default()) {
            Ok(catalog) => {
                let user = envelope.user_id.as_deref().map(Into::into);
                let bytes = envelope.body.len();
                Some(Self { catalog, user, clock_ahead_seconds, bytes })
            }
            Err(error) => {
                warn!(%error, "unreadable announcement");
                None
            }
        }
    }
}

/// Returns the seconds by which the sender's clock is ahead of this one. An announcement is not stored, so
/// it was sent just now.
fn clock_ahead_seconds(announcement: &Envelope) -> i64 {
    let now = unix_ms(SystemTime::now()) / 1000;
    let signed = |seconds| i64::try_from(seconds).unwrap_or(i64::MAX);
    signed(announcement.timestamp).saturating_sub(signed(now))
}
