//! Counts of a handler.

use std::sync::atomic::{AtomicU64, Ordering};

use rockbot_contracts::ToolErrorCode;
use rockbot_tools::{failure::ToolFailure, result::ToolResult};

/// Counts of a handler since it started.
#[derive(Debug, Default)]
pub struct HandlerStats {
    ok: AtomicU64,
    tool_errors: AtomicU64,
    failed: [AtomicU64; ToolErrorCode::KNOWN.len()],
    unreadable: AtomicU64,
    unheard: AtomicU64,
    kept: AtomicU64,
    moved: AtomicU64,
}

impl HandlerStats {
    /// Calls that ended with a result.
    pub fn ok(&self) -> u64 {
        self.ok.load(Ordering::Relaxed)
    }

    /// Calls whose tool said that it failed.
    pub fn tool_errors(&self) -> u64 {
        self.tool_errors.load(Ordering::Relaxed)
    }

    /// Calls that were answered with this code.
    pub fn failed(&self, code: &ToolErrorCode) -> u64 {
        let at = ToolErrorCode::KNOWN.iter().position(|known| known == code);
        at.map_or(0, |at| self.failed[at].load(Ordering::Relaxed))
    }

    /// Requests that could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Answers that did not reach anybody.
    pub fn unheard(&self) -> u64 {
        self.unheard.load(Ordering::Relaxed)
    }

    /// Calls that had ended before and were answered the same again.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Calls that were in hand when handlers were lost and were moved to where they run alone.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn count_moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_kept(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, ended: &Result<ToolResult, ToolFailure>) {
        let counter = match ended {
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

    pub(super) fn count_unheard(&self) {
        self.unheard.fetch_add(1, Ordering::Relaxed);
    }
}
