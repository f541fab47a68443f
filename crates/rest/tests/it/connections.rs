//! Connections that are not established: nothing was sent, so every request is sent again.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::ToolErrorCode as Code;
use rockbot_egress::NameLookup;
use rockbot_rest::RestOptions;
use rockbot_tools::Executed;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    fixture::{Fixture, Kind, call_entry, context},
    server::response,
};

/// Attempts of a call: the first and two retries.
const ATTEMPTS: usize = 3;

/// A resolver that knows no host.
#[derive(Debug)]
struct NoNames;

impl NameLookup for NoNames {
    fn lookup<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async { Err(io::Error::new(io::ErrorKind::NotFound, "no such host")) })
    }
}

/// A server with a certificate of its own for `127.0.0.1`.
struct TlsServer {
    url: String,
    certificate: CertificateDer<'static>,
    /// The outcomes of the handshakes: `true` for success.
    handshakes: mpsc::Receiver<bool>,
    _task: AbortOnDropHandle<()>,
}

impl TlsServer {
    async fn start() -> Self {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (report, handshakes) = mpsc::channel(16);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let accepted = acceptor.accept(stream).await;
                report.send(accepted.is_ok()).await.unwrap();
                let Ok(mut stream) = accepted else { continue };
                let mut head = Vec::new();
                while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap() == 0 {
                        break;
                    }
                }
                stream.write_all(&response("200 OK", "", "trusted")).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        let certificate = cert.der().clone();
        Self { url, certificate, handshakes, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits for the end of the next handshake, and returns whether it succeeded.
    async fn handshake(&mut self) -> bool {
        let handshake = timeout(Duration::from_secs(10), self.handshakes.recv());
        handshake.await.expect("a handshake").expect("the server runs")
    }
}

/// Calls an entry with other options. The call must fail without an execution, after two retries.
async fn assert_not_sent(kind: Kind, url: &str, change: impl FnOnce(&mut RestOptions)) {
    let file = json!({"restTools": {"tool": kind.entry(url)}});
    let fixture = Fixture::with_options(&file, change).await;
    assert!(fixture.provider.status().is_ok(), "{:?}", fixture.provider.status());
    let (context, updates) = context("tool");
    let failure = fixture.call(json!({}), &context).await.unwrap_err();
    let end = (failure.code(), failure.executed());
    assert_eq!(end, (Code::Unavailable, Executed::No), "{kind:?} {url}: {failure:?}");
    assert!(failure.is_retryable());
    assert_eq!(updates.retries(), ATTEMPTS - 1, "{kind:?} {url}");
}

#[tokio::test]
async fn unreachable_server_is_retried_for_every_method() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for kind in Kind::ALL {
        assert_not_sent(kind, &url, |_| {}).await;
    }
}

#[tokio::test]
async fn unknown_host_is_retried_for_every_method() {
    for kind in Kind::ALL {
        let without_names = |options: &mut RestOptions| options.dial.names = Arc::new(NoNames);
        assert_not_sent(kind, "https://api.test/x", without_names).await;
    }
}

#[tokio::test]
async fn server_with_untrusted_certificate_gets_no_request() {
    for kind in Kind::ALL {
        let mut server = TlsServer::start().await;
        assert_not_sent(kind, &server.url, |_| {}).await;
        for _ in 0..ATTEMPTS {
            assert!(!server.handshake().await, "{kind:?}");
        }
        assert!(server.handshakes.try_recv().is_err(), "{kind:?}: more attempts");

        // The same server is called once its certificate is trusted.
        let file = json!({"restTools": {"tool": kind.entry(&server.url)}});
        let trusted = vec![server.certificate.clone()];
        let fixture = Fixture::with_options(&file, |options| options.dial.authorities = trusted);
        let fixture = fixture.await;
        let (context, _) = context("tool");
        let result = fixture.call(json!({}), &context).await.unwrap();
        assert_eq!(result.to_text(), "trusted");
        assert!(server.handshake().await);
    }
}

/// The server accepts connections and does not continue the TLS handshake.
#[tokio::test]
async fn request_without_a_connection_is_not_executed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let mut entry = Kind::Post.entry(&url);
    entry["timeoutMs"] = json!(300);
    let (result, _) = call_entry(entry.clone()).await;
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (Code::Timeout, Executed::No));

    entry["timeoutMs"] = json!(20_000);
    let fixture = Fixture::with_tool(entry).await;
    let (context, _) = context("tool");
    let cancel = async {
        let connection = listener.accept().await.unwrap();
        context.cancellation.cancel();
        connection
    };
    let (result, _connection) = tokio::join!(fixture.call(json!({}), &context), cancel);
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (Code::Cancelled, Executed::No));
}
