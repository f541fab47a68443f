//! `rockbot mcp login`: a person agrees, once, that this program uses a server in their name.

use std::{io, time::Duration};

use rockbot_mcp_bridge::{Bridge, ServersFile};
use rockbot_service::{exit, interrupted};
use serde_json::json;

use crate::{
    ending::{Failure, Outcome},
    print::say,
    settings::Settings,
    show,
};

/// How long a server may take to say what it wants.
const ASKED_WITHIN: Duration = Duration::from_secs(60);
/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) async fn run(settings: &Settings, server: &str, json: bool) -> Outcome {
    let Some(path) = &settings.mcp.config else {
        return Err(Failure::usage("name the file that the server is in with --mcp"));
    };
    let mut file = ServersFile::read(path, |name| std::env::var(name).ok())
        .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))?;
    file.problems.clear();
    file.servers.retain(|name, _| *name == server.to_lowercase());
    if file.servers.is_empty() {
        let shown = show::clean(server);
        return Err(Failure::usage(format!("{} has no usable server {shown}", path.display())));
    }
    let bridge = Bridge::new(settings.mcp.options());
    bridge.apply(file).await;
    let outcome = tokio::select! {
        outcome = log_in(&bridge, server, json) => outcome,
        _ = interrupted() => Err(Failure::unavailable("nobody logged in")),
    };
    bridge.stop().await;
    outcome
}

async fn log_in(bridge: &Bridge, server: &str, json: bool) -> Outcome {
    bridge.settled(ASKED_WITHIN).await;
    let Some(login) = bridge.log_in(server).await.map_err(Failure::unavailable)? else {
        let status = bridge.servers().into_iter().next();
        if let Some(why) = status.filter(|status| !status.ready).and_then(|status| status.why) {
            return Err(Failure::unavailable(format!(
                "no login was asked for: {}",
                show::clean(&why)
            )));
        }
        tell(json, "not needed", "it is connected and wants no login")?;
        return Ok(exit::OK);
    };
    if json {
        say!("{}", json!({"open": login.url()}))?;
    } else {
        say!("open this in a browser on this machine:\n\n{}\n", show::clean(login.url()))?;
    }
    login.finish(PATIENCE).await.map_err(Failure::unavailable)?;
    tell(json, "done", "logged in; bridges of this user on this machine use it from now on")?;
    Ok(exit::OK)
}

fn tell(json: bool, word: &str, sentence: &str) -> io::Result<()> {
    if json { say!("{}", json!({"login": word})) } else { say!("{sentence}") }
}
