//! What becomes of servers that can't be reached, or must not be, over every transport.

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

const TRANSPORTS: [Over; 3] = [Over::Http, Over::Sse, Over::WebSocket];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Http,
    Sse,
    WebSocket,
}

/// Why there is no session with a server, wherever that comes to light.
async fn class_of(over: Over, server: &RemoteServer) -> FailureClass {
    let mut server = server.clone();
    if over == Over::WebSocket {
        let scheme = server.url.scheme().replace("http", "ws");
        server.url.set_scheme(&scheme).unwrap();
    }
    let what = format!("{over:?} {}", server.url);
    let failed = match over {
        Over::Http => match http::connect(&server).await {
            Ok(transport) => {
                let error = within_timeout(&what, ().serve(transport)).await.expect_err(&what);
                return failure_class(&error);
            }
            Err(error) => Some(error),
        },
        Over::Sse => within_timeout(&what, sse::connect(&server)).await.err(),
        Over::WebSocket => within_timeout(&what, websocket::connect(&server)).await.err(),
    };
    failed.expect(&what).class()
}

fn with(url: &str, policy: DialPolicy) -> RemoteServer {
    RemoteServer::new(Url::parse(url).unwrap(), Arc::new(policy))
}

/// A listener with TLS, and the certificate to trust.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Tls {
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

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // A client that does not trust us goes away.
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
async fn a_server_whose_authority_is_trusted_is_called_over_tls() {
    let (tls, port, certificate) = Tls::bind().await;
    tokio::spawn(async move { axum::serve(tls, echo_over_http()).await });
    let trusting = DialPolicy { authorities: vec![certificate], ..loopback() };
    let server = with(&format!("https://localhost:{port}/mcp"), trusting);
    let session = open(http::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("the call", call(session.peer(), "echo")).await.unwrap(), "echo");

    let (mut tls, port, certificate) = Tls::bind().await;
    tokio::spawn(async move { echo(tls.accept().await.0).await });
    let trusting = DialPolicy { authorities: vec![certificate], ..loopback() };
    let server = with(&format!("wss://localhost:{port}/mcp"), trusting);
    let session = open(websocket::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("the call", call(session.peer(), "echo")).await.unwrap(), "echo");
}

#[tokio::test]
async fn a_server_that_proves_nothing_is_sent_nothing() {
    let (mut tls, port, _) = Tls::bind().await;
    tokio::spawn(async move { tls.accept().await });
    for over in TRANSPORTS {
        let server = with(&format!("https://localhost:{port}/mcp"), loopback());
        assert_eq!(class_of(over, &server).await, FailureClass::Tls, "{over:?}");
    }
}

#[tokio::test]
async fn what_the_policy_refuses_is_not_dialled() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        listener.accept().await.unwrap();
        panic!("it was dialled");
    });
    let plain = DialPolicy { allow_plain_http: true, ..DialPolicy::default() };
    for over in TRANSPORTS {
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
            let class = class_of(over, &with(&url, policy)).await;
            assert_eq!(class, FailureClass::Refused, "{over:?} {url}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_says_so_by_its_class() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for over in TRANSPORTS {
        let nowhere = with("https://no-such-host.invalid/mcp", loopback());
        assert_eq!(class_of(over, &nowhere).await, FailureClass::Dns, "{over:?}");
        let closed = with(&format!("http://{free}/mcp"), loopback());
        assert_eq!(class_of(over, &closed).await, FailureClass::Other, "{over:?}");
    }
}

#[tokio::test]
async fn a_server_of_another_kind_is_told_from_one_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
        }
    });
    for over in TRANSPORTS {
        let plain = with(&format!("http://{address}/mcp"), loopback());
        assert_eq!(class_of(over, &plain).await, FailureClass::Malformed, "{over:?}");
        let tls = with(&format!("https://{address}/mcp"), loopback());
        assert_eq!(class_of(over, &tls).await, FailureClass::Tls, "{over:?}");
    }
}

/// Under the paused clock a wait is over as soon as nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_not_waited_for_without_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for over in TRANSPORTS {
        let mut server = with(&format!("http://{address}/mcp"), loopback());
        if over == Over::WebSocket {
            server.url.set_scheme("ws").unwrap();
        }
        let class = match over {
            Over::Http => {
                let transport = http::connect(&server).await.unwrap();
                failure_class(&().serve(transport).await.expect_err("no session"))
            }
            Over::Sse => sse::connect(&server).await.err().expect("no session").class(),
            Over::WebSocket => websocket::connect(&server).await.err().expect("no session").class(),
        };
        assert_eq!(class, FailureClass::TimedOut, "{over:?}");
    }
    drop(listener);
}
