//! A third-party scripted model server: npm's `@copilotkit/aimock`.

use anyhow::Result;

use crate::node::Node;
use crate::server::Server;
use crate::{broker, console, workspace};

const PACKAGE: &str = "@copilotkit/aimock";
const VERSION: &str = "1.43.0";

/// Installs the server if needed and starts it with the script `peers/aimock.json`. The server
/// answers a request that the script does not contain with 503.
pub(crate) fn start(may_install: bool) -> Result<Server> {
    let node = Node::find(may_install)?;
    let folder = workspace::peers_folder()?.join("aimock");
    node.packages(&folder, &[format!("{PACKAGE}@{VERSION}")])?;
    let port = broker::free_port()?;
    let program = folder.join("node_modules").join(PACKAGE).join("dist").join("cli.js");
    let server = Server::start(
        "aimock",
        node.node()
            .arg(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--strict", "--validate-on-load", "--log-level", "warn", "--fixtures"])
            .arg(workspace::peer_file("aimock.json")),
        port,
    )?;
    console::progress("aimock", format_args!("listening at {}", server.base_url()));
    Ok(server)
}
