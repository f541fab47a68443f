//! How agents learn what handlers run, and forget a handler that died.

mod announcer;
mod directory;

pub use self::{
    announcer::CatalogAnnouncer,
    directory::{CatalogDirectory, KnownHandler},
};

use std::time::Duration;

/// How often a handler announces itself unasked.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long a handler that says nothing is believed to live: three heartbeats and a half.
pub const FORGET_AFTER: Duration = Duration::from_secs(35);
