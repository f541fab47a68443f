//! Client for the management API of the test broker.

use rockbot_testkit::fixture::within_timeout;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Sends a request to `/api/PATH` and returns the body of the response.
pub(crate) async fn request(method: &str, path: &str, body: &str) -> String {
    let url = std::env::var("ROCKBOT_TEST_AMQP_MANAGEMENT_URL").expect(
        "this test requires the management API of its broker: run `cargo xtask test`, or set \
         ROCKBOT_TEST_AMQP_MANAGEMENT_URL to http://USER:PASSWORD@HOST:PORT",
    );
    let address = url.strip_prefix("http://").expect("an http URL");
    let (login, host) = address.rsplit_once('@').expect("a URL with user and password");
    let request = format!(
        "{method} /api/{path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Basic {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        base64(login.as_bytes()),
        body.len()
    );
    let mut response = String::new();
    within_timeout("a response of the management API", async {
        let mut socket = TcpStream::connect(host).await?;
        socket.write_all(request.as_bytes()).await?;
        socket.read_to_string(&mut response).await
    })
    .await
    .expect("a response of the management API");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).unwrap_or_default();
    assert!(status.starts_with('2'), "{method} {path}: {head}\n{body}");
    body.to_owned()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for digit in 0..4 {
            if digit > chunk.len() {
                text.push('=');
            } else {
                let index = bits >> (18 - 6 * digit) & 63;
                text.push(char::from(DIGITS[index as usize]));
            }
        }
    }
    text
}
