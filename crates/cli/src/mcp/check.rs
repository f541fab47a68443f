//! `rockbot mcp check`: connects to every server of a file and tells how that went.

use std::{io, path::Path, time::Duration};

use rockbot_mcp_bridge::{Bridge, ServerStatus, ServersFile};
use rockbot_service::{exit, interrupted};
use serde_json::json;

use crate::{
    ending::{Failure, Outcome},
    print::{note, say},
    settings::Settings,
    show,
};

/// How long servers may take: many are fetched when they are started for the first time.
const WITHIN: Duration = Duration::from_secs(100);

pub(super) async fn run(settings: &Settings, file: &Path, json: bool) -> Outcome {
    let read = ServersFile::read(file, |name| std::env::var(name).ok());
    let servers = read.map_err(|problem| {
        Failure::usage(format!("{}: {problem}", show::clean(&file.display().to_string())))
    })?;
    let mut problems = servers.problems.clone();
    let unknown = servers.servers.values().filter_map(|server| {
        let queue = server.queue.as_ref()?;
        let known = settings.mcp.queues.contains_key(queue);
        (!known).then(|| format!("server {:?}: there is no queue {queue:?}", server.name))
    });
    problems.extend(unknown);
    let bridge = Bridge::new(settings.mcp.options());
    if !json {
        note!("{}", show::dim(&format!("connecting to {} servers…", servers.servers.len())));
    }
    bridge.apply(servers).await;
    tokio::select! {
        () = bridge.settled(WITHIN) => {}
        _ = interrupted() => {}
    }
    let servers = bridge.servers();
    bridge.stop().await;
    tell(&servers, &problems, json)?;
    let good = problems.is_empty() && servers.iter().all(|server| server.ready);
    Ok(if good { exit::OK } else { exit::ANSWERED_WITH_ERROR })
}

fn tell(servers: &[ServerStatus], problems: &[String], json: bool) -> io::Result<()> {
    if json {
        let servers = servers.iter().map(|server| {
            json!({
                "name": server.name, "ready": server.ready, "tools": server.tools,
                "required": server.required, "protocolVersion": server.protocol_version,
                "why": server.why,
            })
        });
        let servers: Vec<_> = servers.collect();
        return say!("{:#}", json!({"servers": servers, "problems": problems}));
    }
    let rows = servers.iter().map(|server| {
        let state = if server.ready { show::good("ready") } else { show::bad("failed") };
        let why = server.why.clone().unwrap_or_else(|| {
            if server.ready { String::new() } else { "it did not connect in time".to_owned() }
        });
        let version = server.protocol_version.clone().unwrap_or_default();
        vec![
            show::clean(&server.name),
            state,
            server.tools.to_string(),
            show::clean(&version),
            show::clean(&why),
        ]
    });
    say!("{}", show::table(&["server", "state", "tools", "protocol", ""], rows))?;
    for problem in problems {
        say!("{} {}", show::bad("!"), show::clean(problem))?;
    }
    Ok(())
}
