//! `--healthcheck`: probes the readiness of the process in the same container.
//!
//! The health check of a container can only start a program of its image, and the image may contain
//! only RockBot's. The shared configuration contains the address of the admin port.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use crate::{admin::AdminSection, config::Configuration, exit};

/// Time limit of a connect, a read and a write. The checks of the process take at most 800 ms.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum length of a response, in bytes.
const MAX_RESPONSE_BYTES: u64 = 16 * 1024;

/// Reason why a process counts as not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unready {
    /// There is no admin port to probe.
    #[error("no admin port to probe: admin.address is not set, invalid or has port 0; set it")]
    NoAddress,
    /// The admin port does not respond.
    #[error("no response from {0}: {1}")]
    NoResponse(SocketAddr, #[source] io::Error),
    /// The process reports that it is not ready, and why.
    #[error("{0}")]
    NotReady(String),
}

impl Unready {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NoAddress => exit::USAGE,
            Self::NoResponse(..) | Self::NotReady(_) => exit::UNAVAILABLE,
        }
    }
}

/// Probes the process with this configuration. Only `[admin]` is read.
pub(crate) fn check(configuration: &mut Configuration) -> Result<(), Unready> {
    let admin: AdminSection = configuration.section("admin");
    let address = admin.address.filter(|address| address.port() != 0).ok_or(Unready::NoAddress)?;
    probe(loopback(address))
}

/// Replaces an unspecified address by the loopback address.
fn loopback(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn probe(address: SocketAddr) -> Result<(), Unready> {
    let response = get_readyz(address).map_err(|error| Unready::NoResponse(address, error))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.lines().next().unwrap_or_default();
    match status.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(Unready::NotReady(format!("{status} {body}").trim().to_owned())),
    }
}

fn get_readyz(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{admin::Admin, health::Health};

    async fn run_check(address: Option<SocketAddr>) -> Result<(), Unready> {
        let text = address.map(|address| address.to_string());
        let environment = text.map(|address| ("ROCKBOT_ADMIN__ADDRESS".to_owned(), address));
        let mut configuration = Configuration::layered("", None, environment);
        tokio::task::spawn_blocking(move || check(&mut configuration)).await.unwrap()
    }

    #[tokio::test]
    async fn health_check_passes_only_while_process_is_ready() {
        let health = Health::new(CancellationToken::new());
        // It listens on all interfaces, as in a container, and is reached on the loopback interface.
        let admin = Admin::start(([0, 0, 0, 0], 0).into(), health.clone()).await.unwrap();
        let address = admin.address();
        let starting = run_check(Some(address)).await.unwrap_err();
        assert_eq!(starting.exit_code(), exit::UNAVAILABLE);
        assert!(starting.to_string().contains("\"stage\":\"starting\""), "{starting}");
        health.serving();
        run_check(Some(address)).await.unwrap();
        health.needs("store", || Box::pin(std::future::ready(Err("it is full".to_owned()))));
        let unready = run_check(Some(address)).await.unwrap_err();
        assert!(unready.to_string().contains("it is full"), "{unready}");
    }

    #[tokio::test]
    async fn process_that_does_not_listen_is_not_ready() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let unready = run_check(Some(closed)).await.unwrap_err();
        assert!(matches!(unready, Unready::NoResponse(..)), "{unready}");
        assert_eq!(unready.exit_code(), exit::UNAVAILABLE);
        for unset in [None, Some(([127, 0, 0, 1], 0).into())] {
            assert_eq!(run_check(unset).await.unwrap_err().exit_code(), exit::USAGE);
        }
    }
}
