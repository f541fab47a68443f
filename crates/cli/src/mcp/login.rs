//! `rockbot mcp login`: the user authorizes this program at a remote server with a browser.

use std::{io, time::Duration};

use rockbot_mcp_bridge::{Bridge, ServersFile};
use rockbot_service::{Interrupts, exit};
use serde_json::json;

use crate::{
    failure::{Failure, OrExit, Outcome},
    print::outln,
    render,
    settings::Settings,
};

/// The time limit for the server to connect or request a login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for the user to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) async fn run(
    settings: &Settings,
    server: &str,
    scopes: &[String],
    json: bool,
) -> Outcome {
    let Some(path) = &settings.mcp.config else {
        return Err(Failure::usage("no server file is configured; name it with --mcp"));
    };
    let mut file = ServersFile::read(path, |name| std::env::var(name).ok())
        .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))?;
    file.errors.clear();
    file.servers.retain(|name, _| *name == server.to_lowercase());
    if file.servers.is_empty() {
        let shown = render::clean(server);
        return Err(Failure::usage(format!("{} has no valid server {shown}", path.display())));
    }
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let bridge = Bridge::new(settings.mcp.options());
    bridge.apply(file).await;
    let outcome = tokio::select! {
        outcome = log_in(&bridge, server, scopes, json) => outcome,
        _ = interrupts.recv() => Err(Failure::unavailable("login was interrupted")),
    };
    bridge.stop().await;
    outcome
}

async fn log_in(bridge: &Bridge, server: &str, scopes: &[String], json: bool) -> Outcome {
    bridge.wait_until_settled(CONNECT_TIMEOUT).await;
    let Some(login) = bridge.log_in(server, scopes).await.map_err(Failure::unavailable)? else {
        let status = bridge.servers().into_iter().next();
        if let Some(reason) = status.filter(|status| !status.ready).and_then(|status| status.reason)
        {
            return Err(Failure::unavailable(format!(
                "the server did not request a login: {}",
                render::clean(&reason)
            )));
        }
        report(json, "not needed", "the server is connected and requires no login")?;
        return Ok(exit::OK);
    };
    if json {
        outln!("{}", json!({"open": login.url()}))?;
    } else {
        outln!("open this URL in a browser on this machine:\n\n{}\n", render::clean(login.url()))?;
    }
    login.finish(LOGIN_TIMEOUT).await.map_err(Failure::unavailable)?;
    report(json, "done", "logged in; bridges of this user on this machine can use the server")?;
    Ok(exit::OK)
}

fn report(json: bool, status: &str, message: &str) -> io::Result<()> {
    if json { outln!("{}", json!({"login": status})) } else { outln!("{message}") }
}
