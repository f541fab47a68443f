//! `--healthcheck`: asks the process beside this one whether it is ready.
//!
//! A container's health check can only start a program that is in the container, and an image may
//! hold nothing but ours. With the same configuration it knows the admin port.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use crate::{admin::AdminSection, config::Configuration, exit};

/// How long the process may take to connect, and to be silent. Its needs have 800 ms to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest answer that is looked at.
const MAX_ANSWER: u64 = 16 * 1024;

/// Why a process does not count as ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unready {
    /// There is no port to ask at.
    #[error("admin.address is not set, has port 0 or can't be used, so nobody can be asked")]
    NoAddress,
    /// Nobody answers there.
    #[error("nobody answers at {0}: {1}")]
    Silent(SocketAddr, #[source] io::Error),
    /// It says that it is not, and what it lacks.
    #[error("{0}")]
    Lacking(String),
}

impl Unready {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NoAddress => exit::USAGE,
            Self::Silent(..) | Self::Lacking(_) => exit::UNAVAILABLE,
        }
    }
}

/// Asks whoever runs with this configuration. Other sections than `[admin]` don't matter here.
pub(crate) fn check(configuration: &mut Configuration) -> Result<(), Unready> {
    let admin: AdminSection = configuration.section("admin");
    let address = admin.address.filter(|address| address.port() != 0).ok_or(Unready::NoAddress)?;
    ask(from_here(address))
}

/// Where a process that listens on all addresses is reached from its own machine.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn ask(address: SocketAddr) -> Result<(), Unready> {
    let answer = answer(address).map_err(|error| Unready::Silent(address, error))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    match status.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(Unready::Lacking(format!("{status} {body}").trim().to_owned())),
    }
}

fn answer(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{admin::Admin, health::Health};

    async fn checked(address: Option<SocketAddr>) -> Result<(), Unready> {
        let named = address.map(|address| address.to_string());
        let environment = named.map(|address| ("ROCKBOT_ADMIN__ADDRESS".to_owned(), address));
        let mut configuration = Configuration::layered("", None, environment);
        tokio::task::spawn_blocking(move || check(&mut configuration)).await.unwrap()
    }

    #[tokio::test]
    async fn a_check_of_health_passes_exactly_while_the_process_is_ready() {
        let health = Health::new(CancellationToken::new());
        // Everywhere, as in a container: it is reached on the loopback interface all the same.
        let admin = Admin::start(([0, 0, 0, 0], 0).into(), health.clone()).await.unwrap();
        let address = admin.address();
        let starting = checked(Some(address)).await.unwrap_err();
        assert_eq!(starting.exit_code(), exit::UNAVAILABLE);
        assert!(starting.to_string().contains("\"stage\":\"starting\""), "{starting}");
        health.serving();
        checked(Some(address)).await.unwrap();
        health.needs("store", || Box::pin(std::future::ready(Err("it is full".to_owned()))));
        let lacking = checked(Some(address)).await.unwrap_err();
        assert!(lacking.to_string().contains("it is full"), "{lacking}");
    }

    #[tokio::test]
    async fn a_process_that_does_not_listen_is_not_ready() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let silent = checked(Some(gone)).await.unwrap_err();
        assert!(matches!(silent, Unready::Silent(..)), "{silent}");
        assert_eq!(silent.exit_code(), exit::UNAVAILABLE);
        for unknown in [None, Some(([127, 0, 0, 1], 0).into())] {
            assert_eq!(checked(unknown).await.unwrap_err().exit_code(), exit::USAGE);
        }
    }
}
