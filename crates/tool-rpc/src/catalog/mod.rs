//! Announcements of the tools that handlers run, and the directory of them in agents.

mod announcer;
mod directory;

pub use self::{
    announcer::CatalogAnnouncer,
    directory::{CatalogDirectory, KnownHandler},
};

use std::time::Duration;

/// Interval of a handler's announcements.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Time without announcements after which a handler counts as gone: three and a half heartbeats.
pub const EXPIRE_AFTER: Duration = Duration::from_secs(35);
