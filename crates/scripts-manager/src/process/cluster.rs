//! The Kubernetes cluster that runs the scripts.

use std::{fmt::Display, net::SocketAddr};

use kube::{Client, Config};
use rockbot_scripts_manager::PodsSection;
use rockbot_service::ServeError;

use super::configuration_error;

/// Maximum number of addresses of the API server that the network probe tries.
const MAX_PROBE_ADDRESSES: usize = 4;

/// Access to the cluster.
pub(crate) struct Cluster {
    pub(super) client: Client,
    /// Addresses of the API server that the network probe tries to reach.
    pub(super) probe_addresses: Vec<SocketAddr>,
}

impl Cluster {
    /// Finds the cluster: that of a kubeconfig, or else that of the pod's service account.
    pub(crate) async fn find(section: &PodsSection) -> Result<Self, ServeError> {
        let config = Config::infer().await.map_err(unavailable)?;
        let probe_addresses =
            if section.probe_network { api_server_addresses(&config).await } else { Vec::new() };
        let client = Client::try_from(config).map_err(unavailable)?;
        Ok(Self { client, probe_addresses })
    }
}

fn unavailable(error: impl Display) -> ServeError {
    configuration_error(format!(
        "Kubernetes cluster unavailable: {error}; run in a pod with a service account, or set KUBECONFIG"
    ))
}

/// Returns the addresses of the API server, for the network probe.
async fn api_server_addresses(cluster: &Config) -> Vec<SocketAddr> {
    let url = &cluster.cluster_url;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.take(MAX_PROBE_ADDRESSES).collect(),
        Err(error) => {
            tracing::warn!(%error, "API server address lookup failed; network isolation not probed");
            Vec::new()
        }
    }
}
