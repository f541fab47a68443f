//! A probe of the network isolation: a script tries to connect out of its pod.

use std::{fmt::Write, net::SocketAddr, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{Isolation, Script, ScriptRunner};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::runner::{KubernetesRunner, NETWORK};

/// Prints the addresses of its input that accept a connection.
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
/// The address at which clouds publish credentials to machines.
const METADATA: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)), 80);
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest start of its pod: nothing is served until the probe has finished.
const START_TIMEOUT: Duration = Duration::from_secs(60);

impl KubernetesRunner {
    /// Probes the network isolation and returns the isolation of scripts. Without addresses, or when
    /// the probe fails, the network counts as a gap and every result reports it.
    ///
    /// Takes at most 90 s.
    pub async fn probe(&self, addresses: &[SocketAddr]) -> Isolation {
        if addresses.is_empty() {
            warn!("network isolation not probed; reported as a gap");
            self.set_gaps(vec![format!("{NETWORK} (not probed)")]);
        } else if let Err(failure) = self.probe_network(addresses).await {
            warn!(
                failure = %failure.chain(),
                "network isolation probe failed; reported as a gap until the manager restarts"
            );
            self.set_gaps(vec![format!("{NETWORK} (not probed: the probe did not run)")]);
        }
        self.isolation()
    }

    /// Runs a script that tries to reach `addresses`, such as the API server's, and the metadata
    /// address of clouds. Returns how many it reached; if any, every result reports the gap from then on.
    ///
    /// Reaching none does not prove that the network is closed.
    ///
    /// # Errors
    /// When the script can't be run, or fails.
    pub async fn probe_network(&self, addresses: &[SocketAddr]) -> Result<usize, ToolFailure> {
        let mut input = String::new();
        for address in addresses.iter().chain([&METADATA]).take(8) {
            let _ = writeln!(input, "{} {}", address.ip(), address.port());
        }
        let to_failure = |error: &dyn std::fmt::Display| ToolFailure::failed(error.to_string());
        let script = Script::new(PROBE)
            .and_then(|script| script.with_input(input))
            .and_then(|script| script.with_timeout(TIMEOUT))
            .map_err(|error| to_failure(&error))?;
        let session = SessionId::new("probe").map_err(|error| to_failure(&error))?;
        let agent = AgentName::new("probe").map_err(|error| to_failure(&error))?;
        let mut context = ToolContext::new("probe", session, agent);
        context.deadline = Instant::now() + self.start_timeout().min(START_TIMEOUT) + TIMEOUT;
        let outcome = self.run(&script, &context).await?;
        if outcome.exit_code != 0 {
            return Err(ToolFailure::failed(format!("it exited with {}", outcome.exit_code)));
        }
        let reached = outcome.stdout.lines().count();
        match reached {
            0 => {
                info!("network isolation probed: no address reached");
                self.set_gaps(Vec::new());
            }
            _ => {
                warn!(
                    reached,
                    "scripts can reach the network; use a network plugin that enforces policies, and check \
                     that deny-all exists and that no other policy selects script pods"
                );
                self.set_gaps(vec![NETWORK.to_owned()]);
            }
        }
        Ok(reached)
    }
}
