//! Announcements of the tools that handlers run, and the directory of them in agents.

mod announcer;
mod conflict;
mod directory;
mod handler_list;
mod handler_view;
mod known_handler;
mod mismatch;
mod observer;
mod registry_sync;
mod snapshot;
mod tool_owners;

pub use self::{
    announcer::{AnnouncedHandler, CatalogAnnouncer},
    conflict::{PoolConflict, ToolOrigin},
    directory::CatalogDirectory,
    handler_view::HandlerView,
    known_handler::KnownHandler,
    mismatch::{MismatchedTool, mismatched_tools},
    observer::CatalogObserver,
    snapshot::CatalogSnapshot,
};

use std::time::Duration;

/// Interval of a handler's announcements.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Time without announcements after which a handler counts as gone: three and a half heartbeats.
pub const EXPIRE_AFTER: Duration = Duration::from_secs(35);
