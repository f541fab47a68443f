//! The console: its page, and the sessions of browsers.

mod assets;
mod session;

use std::sync::Arc;

use crate::{face::Route, guard::Guard, parts::GatewayParts};

/// Returns the routes of the page and of sessions.
pub(crate) fn routes(guard: &Arc<Guard>, parts: &GatewayParts) -> Vec<Route> {
    let mut routes = session::routes(guard, parts);
    routes.extend(assets::routes());
    routes
}
