//! Failures to dial a server, over every transport.

use std::sync::Arc;

use axum::Router;
use axum::serve::Listener;
use reqwest::Url;
use rmcp::ServiceExt;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rockbot_mcp_bridge::transport::{
    DialPolicy, FailureClass, RemoteServer, failure_class, http, sse, websocket,
};
use rockbot_testkit::fixture::within_timeout;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::websocket::{Echo, echo};
use super::{call, loopback, open};

const TRANSPORTS: [Kind; 3] = [Kind::Http, Kind::Sse, Kind::WebSocket];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Sse,
    WebSocket,
}

/// Connects and returns the class of the failure, from the connection or from the handshake.
async fn connect_failure(kind: Kind, server: &RemoteServer) -> FailureClass {
    let mut server = server.clone();
    if kind == Kind::WebSocket {
        let scheme = server.url.scheme().replace("http", "ws");
        server.url.set_scheme(&scheme).unwrap();
    }
    let event = format!("{kind:?} {}", server.url);
    let error = match kind {
        Kind::Http => match http::connect(&server).await {
            Ok(transport) => {
                let error = within_timeout(&event, ().serve(transport)).await.expect_err(&event);
                return failure_class(&error);
            }
            Err(error) => Some(error),
        },
        Kind::Sse => within_timeout(&event, sse::connect(&server)).await.err(),
        Kind::WebSocket => within_timeout(&event, websocket::connect(&server)).await.err(),
    };
    error.expect(&event).class()
}

fn server_with(url: &str, policy: DialPolicy) -> RemoteServer {
    RemoteServer::new(Url::parse(url).unwrap(), Arc::new(policy))
}

/// A listener with TLS.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// Binds a port with a self-signed certificate; returns the port and the certificate.
    async fn bind() -> (Self, u16, CertificateDer<'static>) {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        (Self { listener, acceptor }, port, cert.der().clone())
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // A client that does not trust the certificate disconnects.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn echo_over_http() -> Router {
    let service: StreamableHttpService<Echo, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Echo), Arc::default(), Default::default());
    Router::new().nest_service("/mcp", service)
}

#[tokio::test]
async fn server_with_trusted_authority_is_called_over_tls() {
    let (tls, port, certificate) = TlsListener::bind().await;
    tokio::spawn(async move { axum::serve(tls, echo_over_http()).await });
    let policy = DialPolicy { authorities: vec![certificate], ..loopback() };
    let server = server_with(&format!("https://localhost:{port}/mcp"), policy);
    let session = open(http::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("the call", call(session.peer(), "echo")).await.unwrap(), "echo");

    let (mut tls, port, certificate) = TlsListener::bind().await;
    tokio::spawn(async move { echo(tls.accept().await.0).await });
    let policy = DialPolicy { authorities: vec![certificate], ..loopback() };
    let server = server_with(&format!("wss://localhost:{port}/mcp"), policy);
    let session = open(websocket::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("the call", call(session.peer(), "echo")).await.unwrap(), "echo");
}

#[tokio::test]
async fn untrusted_certificate_fails_as_tls() {
    let (mut tls, port, _) = TlsListener::bind().await;
    tokio::spawn(async move { tls.accept().await });
    for kind in TRANSPORTS {
        let server = server_with(&format!("https://localhost:{port}/mcp"), loopback());
        assert_eq!(connect_failure(kind, &server).await, FailureClass::Tls, "{kind:?}");
    }
}

#[tokio::test]
async fn refused_addresses_are_not_dialed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        listener.accept().await.unwrap();
        panic!("it was dialed");
    });
    let plain = DialPolicy { allow_plain_http: true, ..DialPolicy::default() };
    for kind in TRANSPORTS {
        for (url, policy) in [
            (format!("http://127.0.0.1:{port}/"), DialPolicy::default()),
            (format!("https://127.0.0.1:{port}/"), DialPolicy::default()),
            (format!("https://localhost:{port}/"), DialPolicy::default()),
            (format!("http://127.0.0.1:{port}/"), plain.clone()),
            (format!("http://localhost:{port}/"), plain.clone()),
            (format!("http://0x7f000001:{port}/"), plain.clone()),
            (format!("http://[::ffff:127.0.0.1]:{port}/"), plain.clone()),
            (format!("http://user:secret@127.0.0.1:{port}/"), loopback()),
        ] {
            let class = connect_failure(kind, &server_with(&url, policy)).await;
            assert_eq!(class, FailureClass::Refused, "{kind:?} {url}");
        }
    }
}

#[tokio::test]
async fn unreachable_server_fails_as_dns_or_other() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for kind in TRANSPORTS {
        let unknown = server_with("https://no-such-host.invalid/mcp", loopback());
        assert_eq!(connect_failure(kind, &unknown).await, FailureClass::Dns, "{kind:?}");
        let closed = server_with(&format!("http://{free}/mcp"), loopback());
        assert_eq!(connect_failure(kind, &closed).await, FailureClass::Unreachable, "{kind:?}");
    }
}

#[tokio::test]
async fn non_http_server_is_malformed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
        }
    });
    for kind in TRANSPORTS {
        let plain = server_with(&format!("http://{address}/mcp"), loopback());
        assert_eq!(connect_failure(kind, &plain).await, FailureClass::Malformed, "{kind:?}");
        let tls = server_with(&format!("https://{address}/mcp"), loopback());
        assert_eq!(connect_failure(kind, &tls).await, FailureClass::Tls, "{kind:?}");
    }
}

/// With the paused clock, a timeout elapses as soon as the runtime is idle.
#[tokio::test(start_paused = true)]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for kind in TRANSPORTS {
        let mut server = server_with(&format!("http://{address}/mcp"), loopback());
        if kind == Kind::WebSocket {
            server.url.set_scheme("ws").unwrap();
        }
        let class = match kind {
            Kind::Http => {
                let transport = http::connect(&server).await.unwrap();
                failure_class(&().serve(transport).await.expect_err("no session"))
            }
            Kind::Sse => sse::connect(&server).await.err().expect("no session").class(),
            Kind::WebSocket => websocket::connect(&server).await.err().expect("no session").class(),
        };
        assert_eq!(class, FailureClass::TimedOut, "{kind:?}");
    }
    drop(listener);
}
