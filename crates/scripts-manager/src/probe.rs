//! Whether the network of scripts is really closed: a script tries to leave.

use std::{fmt::Write, net::SocketAddr, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{Script, ScriptRunner};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::runner::KubernetesRunner;

/// Says which of the addresses in its input take a connection.
const PROBE: &str = "\
import os, socket
for line in os.environ['ROCKBOT_INPUT'].splitlines():
    host, port = line.rsplit(' ', 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
        print(line)
    except OSError:
        pass
";
/// Where the clouds tell machines their credentials.
const METADATA: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)), 80);
const TIMEOUT: Duration = Duration::from_secs(30);

impl KubernetesRunner {
    /// Has a script try to reach `addresses`, such as the API server's, and the metadata address of
    /// clouds. What it reached; from then on every result says that the network is open, if it is.
    ///
    /// That it reached nothing does not prove that there is nothing to reach.
    ///
    /// # Errors
    /// When the script can't be run.
    pub async fn probe_network(&self, addresses: &[SocketAddr]) -> Result<usize, ToolFailure> {
        let mut input = String::new();
        for address in addresses.iter().chain([&METADATA]).take(8) {
            let _ = writeln!(input, "{} {}", address.ip(), address.port());
        }
        let unusable = |error: &dyn std::fmt::Display| ToolFailure::failed(error.to_string());
        let script = Script::new(PROBE)
            .and_then(|script| script.with_input(input))
            .and_then(|script| script.within(TIMEOUT))
            .map_err(|error| unusable(&error))?;
        let session = SessionId::new("probe").map_err(|error| unusable(&error))?;
        let agent = AgentName::new("probe").map_err(|error| unusable(&error))?;
        let mut context = ToolContext::new("probe", session, agent);
        context.deadline = Instant::now() + self.section.start() + TIMEOUT;
        let outcome = self.run(&script, &context).await?;
        let reached = outcome.stdout.lines().count();
        match reached {
            0 => {
                info!("a script that tried to leave the cluster's network policy did not get out");
                self.admit_open(Vec::new());
            }
            _ => {
                warn!(
                    reached,
                    "scripts can reach the network: use a network plugin that enforces policies, \
                     and see that deny-all is there and no other policy selects the pods of scripts"
                );
                self.admit_open(vec!["the network".to_owned()]);
            }
        }
        Ok(reached)
    }
}
