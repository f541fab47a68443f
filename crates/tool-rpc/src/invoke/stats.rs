//! Counters of a handler.

use std::sync::atomic::{AtomicU64, Ordering};

use rockbot_contracts::ToolErrorCode;
use rockbot_tools::{failure::ToolFailure, result::ToolResult};

/// Counters of a handler since its start.
#[derive(Debug, Default)]
pub struct HandlerStats {
    ok: AtomicU64,
    tool_errors: AtomicU64,
    failed: [AtomicU64; ToolErrorCode::KNOWN.len()],
    unreadable: AtomicU64,
    undelivered: AtomicU64,
    replayed: AtomicU64,
    quarantined: AtomicU64,
}

impl HandlerStats {
    /// Returns the number of calls that returned a result.
    pub fn ok(&self) -> u64 {
        self.ok.load(Ordering::Relaxed)
    }

    /// Returns the number of calls whose result is an error of the tool.
    pub fn tool_errors(&self) -> u64 {
        self.tool_errors.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that failed with `code`.
    pub fn failed(&self, code: &ToolErrorCode) -> u64 {
        let at = ToolErrorCode::KNOWN.iter().position(|known| known == code);
        at.map_or(0, |at| self.failed[at].load(Ordering::Relaxed))
    }

    /// Returns the number of requests that were dead-lettered unread.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Returns the number of replies that did not reach their caller.
    pub fn undelivered(&self) -> u64 {
        self.undelivered.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that were answered with a recorded reply.
    pub fn replayed(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that were moved to the quarantine queue.
    pub fn quarantined(&self) -> u64 {
        self.quarantined.load(Ordering::Relaxed)
    }

    pub(super) fn count_quarantined(&self) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_replayed(&self) {
        self.replayed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, result: &Result<ToolResult, ToolFailure>) {
        let counter = match result {
            Ok(result) if result.is_error => &self.tool_errors,
            Ok(_) => &self.ok,
            Err(failure) => {
                let code = failure.code();
                match ToolErrorCode::KNOWN.iter().position(|known| *known == code) {
                    Some(at) => &self.failed[at],
                    None => return,
                }
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_undelivered(&self) {
        self.undelivered.fetch_add(1, Ordering::Relaxed);
    }
}
