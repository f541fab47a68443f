//! Whether the network of scripts is really closed: a script tries to leave.

use std::{fmt::Write, net::SocketAddr, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{Isolation, Script, ScriptRunner};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::runner::{KubernetesRunner, NETWORK};

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
/// How long its pod may take to start, at most: nothing is served until the probe has ended.
const START: Duration = Duration::from_secs(60);

impl KubernetesRunner {
    /// What keeps scripts from everything else, after a look whether the network is closed. Whoever
    /// can't look, or has no address to try, has to take it for open, and so every result says.
    ///
    /// Takes 90 s at most.
    pub async fn probed(&self, addresses: &[SocketAddr]) -> Isolation {
        if addresses.is_empty() {
            warn!("nobody tried whether the network of scripts is closed: it is told to be open");
            self.admit_open(vec![format!("{NETWORK} (not probed)")]);
        } else if let Err(failure) = self.probe_network(addresses).await {
            warn!(
                failure = %failure.chain(),
                "the script that looks whether the network is closed did not run: it is told to be \
                 open until the manager starts again"
            );
            self.admit_open(vec![format!("{NETWORK} (not probed: the probe did not run)")]);
        }
        self.isolation()
    }

    /// Has a script try to reach `addresses`, such as the API server's, and the metadata address of
    /// clouds. What it reached; from then on every result says that the network is open, if it is.
    ///
    /// That it reached nothing does not prove that there is nothing to reach.
    ///
    /// # Errors
    /// When the script can't be run, or fails.
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
        context.deadline = Instant::now() + self.section.start().min(START) + TIMEOUT;
        let outcome = self.run(&script, &context).await?;
        if outcome.exit_code != 0 {
            return Err(ToolFailure::failed(format!("it exited with {}", outcome.exit_code)));
        }
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
                self.admit_open(vec![NETWORK.to_owned()]);
            }
        }
        Ok(reached)
    }
}
