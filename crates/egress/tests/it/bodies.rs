//! Hostile responses: every one ends at a limit or at the deadline, in bounded memory.

use std::sync::Arc;
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use reqwest::{Method, Response};
use rockbot_egress::{ClientOptions, EgressError, Fetch, GuardedClient, read_body, read_prefix};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::server::{Connection, HOST, policy, serve, serve_text, url};

const MAX_BYTES: usize = 5 * 1024 * 1024;
/// The memory that one hostile response may use, in bytes.
const MAX_MEMORY: u64 = 64 * 1024 * 1024;

async fn get(port: u16, gzip: bool) -> Result<Response, EgressError> {
    let options = ClientOptions { gzip, ..ClientOptions::default() };
    let client = GuardedClient::new(Arc::new(policy()), options).unwrap();
    let fetch = Fetch::new(&client, Method::GET, url(&format!("http://{HOST}:{port}/")));
    let fetched = fetch.with_deadline(deadline()).finish().await?;
    Ok(fetched.response)
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Returns the largest memory that this process has used, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Writes `piece` up to `times` times, until the client closes the connection. Returns the number of
/// written bytes.
async fn write_repeatedly(connection: &mut dyn Connection, piece: &[u8], times: usize) -> u64 {
    let mut written = 0;
    for _ in 0..times {
        if connection.write_all(piece).await.is_err() {
            break;
        }
        written += piece.len() as u64;
    }
    written
}

/// Returns the start of a gzip file, and a block of 1 MiB of zeros that may be repeated.
fn gzip_bomb() -> (Vec<u8>, Vec<u8>) {
    let header = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut block = Vec::with_capacity(64 * 1024);
    let mut deflate = Compress::new(Compression::best(), false);
    deflate.compress_vec(&vec![0; 1024 * 1024], &mut block, FlushCompress::Full).unwrap();
    (header, block)
}

#[tokio::test]
async fn gzip_bomb_ends_at_the_limit() {
    let (header, block) = gzip_bomb();
    let times = 10 * 1024;
    assert!(block.len() * times < 12_000_000, "10 GiB in {} bytes", block.len() * times);
    let port = serve(move |_, mut connection| {
        let (header, block) = (header.clone(), block.clone());
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
            let _ = connection.write_all(head.as_bytes()).await;
            let _ = connection.write_all(&header).await;
            write_repeatedly(&mut *connection, &block, times).await;
        }
    })
    .await;
    let before = peak_memory();
    let response = get(port, true).await.unwrap();
    let error = read_body(response, MAX_BYTES, Some(deadline())).await.unwrap_err();
    assert!(matches!(error, EgressError::TooLarge { max_bytes: MAX_BYTES }), "{error:?}");
    assert!(peak_memory() - before <= MAX_MEMORY);
}

#[tokio::test]
async fn compressed_body_is_passed_on_without_gzip() {
    let mut body = gzip_bomb().0;
    body.extend(b"not deflate");
    let port = serve(move |head, mut connection| {
        let body = body.clone();
        async move {
            assert!(!head.contains("accept-encoding"), "{head}");
            let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
            let _ = connection.write_all(head.as_bytes()).await;
            let _ = connection.write_all(&body).await;
        }
    })
    .await;
    let raw = read_body(get(port, false).await.unwrap(), MAX_BYTES, None).await.unwrap();
    assert!(raw.ends_with(b"not deflate"));
}

#[tokio::test]
async fn endless_body_ends_at_the_limit() {
    let port = serve(|_, mut connection| async move {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let _ = connection.write_all(head.as_bytes()).await;
        write_repeatedly(&mut *connection, &[b'x'; 64 * 1024], usize::MAX).await;
    })
    .await;
    let before = peak_memory();
    let error = read_body(get(port, true).await.unwrap(), MAX_BYTES, None).await.unwrap_err();
    assert!(matches!(error, EgressError::TooLarge { .. }), "{error:?}");
    let prefix = read_prefix(get(port, true).await.unwrap(), 1000, None).await.unwrap();
    assert_eq!((prefix.bytes.len(), prefix.is_complete), (1000, false));
    assert!(peak_memory() - before <= MAX_MEMORY);
}

#[tokio::test(start_paused = true)]
async fn slow_body_ends_at_the_deadline() {
    let port = serve(|_, mut connection| async move {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let _ = connection.write_all(head.as_bytes()).await;
        while connection.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    let start = Instant::now();
    let response = get(port, true).await.unwrap();
    let error = read_body(response, MAX_BYTES, Some(start + Duration::from_secs(30))).await;
    assert!(matches!(error, Err(EgressError::TimedOut)), "{error:?}");
    assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_server_ends_at_the_deadline() {
    let port = serve(|_, connection| async move {
        std::future::pending::<()>().await;
        drop(connection);
    })
    .await;
    let start = Instant::now();
    let error = get(port, true).await.unwrap_err();
    assert!(matches!(error, EgressError::TimedOut) && error.was_sent(), "{error:?}");
    assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());
}

#[tokio::test]
async fn huge_header_is_refused() {
    let (sender, mut written) = mpsc::channel(1);
    let port = serve(move |_, mut connection| {
        let sender = sender.clone();
        async move {
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nx-long: ").await;
            let gigabyte = 1024 * 16;
            let written = write_repeatedly(&mut *connection, &[b'x'; 64 * 1024], gigabyte).await;
            sender.send(written).await.unwrap();
        }
    })
    .await;
    let before = peak_memory();
    let error = get(port, true).await.unwrap_err();
    assert!(matches!(error, EgressError::NotHttp), "{error:?}");
    let written = written.recv().await.unwrap();
    assert!(written < 64 * 1024 * 1024, "{written}");
    assert!(peak_memory() - before <= MAX_MEMORY);

    let port =
        serve_text(|_| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(10_000))).await;
    let error = get(port, true).await.unwrap_err();
    assert!(matches!(error, EgressError::NotHttp), "{error:?}");
}

#[tokio::test]
async fn wrong_content_length_is_bounded() {
    let with_length = |length: &'static str, body: &'static str| {
        serve_text(move |_| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        })
    };
    // Refused before a byte of the body arrives.
    let huge = get(with_length("10000000000", "").await, true).await.unwrap();
    let error = read_body(huge, MAX_BYTES, None).await.unwrap_err();
    assert!(matches!(error, EgressError::TooLarge { .. }), "{error:?}");

    let too_long = get(with_length("100", "short").await, true).await.unwrap();
    let error = read_body(too_long, MAX_BYTES, None).await.unwrap_err();
    assert!(matches!(error, EgressError::Connection(_)) && error.was_sent(), "{error:?}");

    let too_short = get(with_length("5", "short and more").await, true).await.unwrap();
    assert_eq!(read_body(too_short, MAX_BYTES, None).await.unwrap(), b"short");

    for invalid in ["-1", "5, 6", "x"] {
        let error = get(with_length(invalid, "short").await, true).await.unwrap_err();
        assert!(matches!(error, EgressError::NotHttp), "{invalid}: {error:?}");
    }
}
