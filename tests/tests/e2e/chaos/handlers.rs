//! Tool handlers that share a journal.

use std::{path::Path, sync::Arc};

use tokio::process::Command;

use super::services::Services;
use crate::{binaries, clocks::Clocks};

pub(super) const HANDLERS: usize = 3;

/// Time that a process takes for its running work after SIGTERM.
const DRAIN: &str = "6s";

/// Settings that the handlers of a run have in common.
pub(super) struct HandlerSettings<'a> {
    /// The folder of the commands.
    pub(super) folder: &'a Path,
    /// Calls that a handler runs at a time.
    pub(super) concurrency: usize,
    /// Calls that a handler holds in addition to the running ones.
    pub(super) backlog: usize,
    /// Their clocks, if faults change these.
    pub(super) clocks: Option<Arc<Clocks>>,
}

/// Returns a launcher of handlers, see [`Processes::start`](super::processes::Processes::start).
pub(super) fn launcher(
    services: &Services,
    settings: &HandlerSettings<'_>,
) -> impl Fn(&str) -> Command + Send + Sync + use<> {
    let base = base_settings(services);
    let store_url = services.store_url.clone();
    let (folder, concurrency, backlog) =
        (settings.folder.to_owned(), settings.concurrency, settings.backlog);
    let clocks = settings.clocks.clone();
    move |name| {
        let mut command = program("rockbot-tool-handler", name, &base);
        command
            .env("ROCKBOT_LOG__LEVEL", "info,rockbot_tool_rpc=debug,rockbot_bus=debug")
            .env("ROCKBOT_STORE__URL", &store_url)
            .env("ROCKBOT_STORE__SHARED", "true")
            .env("ROCKBOT_FILES__ROOT", &folder)
            .env("ROCKBOT_HANDLER__CONCURRENCY", concurrency.to_string())
            .env("ROCKBOT_HANDLER__BACKLOG", backlog.to_string());
        if let Some(clocks) = &clocks {
            clocks.apply(name, &mut command);
        }
        command
    }
}

/// Returns the settings of every process.
pub(super) fn base_settings(services: &Services) -> [(&'static str, String); 3] {
    [
        ("ROCKBOT_BUS__URL", services.amqp_url.clone()),
        ("ROCKBOT_BUS__NAMESPACE", services.namespace.clone()),
        ("ROCKBOT_SERVICE__DRAIN", DRAIN.to_owned()),
    ]
}

/// Returns the command of a program with a clean environment.
pub(super) fn program(
    program: &str,
    instance: &str,
    settings: &[(&'static str, String)],
) -> Command {
    let mut command = Command::new(binaries::path(program));
    command
        .current_dir("/")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("ROCKBOT_LOG__FORMAT", "text")
        .env("ROCKBOT_SERVICE__INSTANCE", instance)
        .envs(settings.iter().map(|(key, value)| (key, value)));
    command
}
