//! Address, product and liveness of the broker, from its URL and its greeting before authentication.

use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
const MAX_GREETING_BYTES: u64 = 16 * 1024;

/// Returns product and version of the broker; the version is unknown over TLS or if the greeting can't be
/// parsed.
pub(crate) async fn broker_version(uri: &AMQPUri) -> String {
    let unknown = || "RabbitMQ (version unknown)".to_owned();
    if uri.scheme != AMQPScheme::AMQP {
        return unknown();
    }
    match timeout(Duration::from_secs(3), greeting(uri)).await {
        Ok(Ok(greeting)) => match (text(&greeting, "product"), text(&greeting, "version")) {
            (Some(product), Some(version)) => format!("{product} {version}"),
            _ => unknown(),
        },
        _ => unknown(),
    }
}

/// Returns the broker's URL without the password.
pub(crate) fn address_of(uri: &AMQPUri) -> String {
    let authority = &uri.authority;
    let (user, host) = (&authority.userinfo.username, &authority.host);
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let vhost = uri.vhost.replace('/', "%2f");
    format!("{}://{user}@{host}:{}/{vhost}", uri.scheme, authority.port)
}

/// Waits until the peer responds in any way, including closing the connection.
pub(crate) async fn await_response(uri: &AMQPUri) -> std::io::Result<()> {
    let mut socket = connect(uri).await?;
    socket.read(&mut [0]).await.map(drop)
}

async fn connect(uri: &AMQPUri) -> std::io::Result<TcpStream> {
    let address = (uri.authority.host.as_str(), uri.authority.port);
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(PROTOCOL_HEADER).await?;
    Ok(socket)
}

async fn greeting(uri: &AMQPUri) -> std::io::Result<Vec<u8>> {
    let mut socket = connect(uri).await?;
    // A frame: type (1), channel (2), size (4), payload, end (1).
    let mut head = [0; 7];
    socket.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let mut payload = Vec::new();
    let size = u64::from(size).min(MAX_GREETING_BYTES);
    socket.take(size).read_to_end(&mut payload).await?;
    Ok(payload)
}

/// Returns the value of a long-string field. Its encoding: name with a length byte, `S`, value with a
/// length of four bytes.
fn text(greeting: &[u8], field: &str) -> Option<String> {
    let mut marker = vec![u8::try_from(field.len()).ok()?];
    marker.extend_from_slice(field.as_bytes());
    marker.push(b'S');
    let at = greeting.windows(marker.len()).position(|window| window == marker)?;
    let (size, rest) = greeting.get(at + marker.len()..)?.split_at_checked(4)?;
    let size = u32::from_be_bytes(size.try_into().ok()?) as usize;
    let value = rest.get(..size)?;
    Some(value.iter().map(|byte| char::from(*byte)).filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_omits_the_password() {
        for (url, shown) in [
            ("amqp://me:secret@broker:5672/%2f", "amqp://me@broker:5672/%2f"),
            ("amqps://me:secret@broker/fleet?heartbeat=5", "amqps://me@broker:5671/fleet"),
        ] {
            assert_eq!(address_of(&url.parse().unwrap()), shown);
        }
    }

    #[test]
    fn malformed_field_has_no_value() {
        let greeting = b"junk\x07versionS\x00\x00\x00\x063.10.8more";
        assert_eq!(text(greeting, "version").as_deref(), Some("3.10.8"));
        assert_eq!(text(greeting, "product"), None);
        assert_eq!(text(b"\x07versionS\xff\xff\xff\xff1", "version"), None);
        assert_eq!(text(b"\x07versionS\x00", "version"), None);
    }
}
