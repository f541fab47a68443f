//! Servers and name resolution under the control of a test.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::Url;
use rockbot_egress::{DialPolicy, NameLookup};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The host that policies of tests allow, although it is on this machine.
pub(crate) const HOST: &str = "start.test";

/// A connection, with TLS or without.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// Accepts connections, reads the head of one request from each and passes both to `respond`, which may
/// write any bytes. Returns the port.
pub(crate) async fn serve<F, R>(respond: F) -> u16
where
    F: Fn(String, Box<dyn Connection>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let respond = Arc::new(respond);
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond_once(Box::new(stream), respond.clone()));
        }
    });
    port
}

/// Starts a server like [`serve`] with TLS and a self-signed certificate for [`HOST`].
pub(crate) async fn serve_tls<F, R>(respond: F) -> (u16, CertificateDer<'static>)
where
    F: Fn(String, Box<dyn Connection>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
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
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let respond = Arc::new(respond);
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust the certificate disconnects.
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(respond_once(Box::new(stream), respond.clone()));
            }
        }
    });
    (port, cert.der().clone())
}

async fn respond_once<F, R>(mut connection: Box<dyn Connection>, respond: Arc<F>)
where
    F: Fn(String, Box<dyn Connection>) -> R,
    R: Future<Output = ()>,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    respond(String::from_utf8(head).unwrap(), connection).await;
}

/// Starts a server that closes the connection after one response. `response` gets the head of the
/// request and returns the whole response.
pub(crate) async fn serve_text(response: impl Fn(&str) -> String + Send + Sync + 'static) -> u16 {
    serve(move |head, mut connection| {
        let response = response(&head);
        async move {
            let _ = connection.write_all(response.as_bytes()).await;
            let _ = connection.shutdown().await;
        }
    })
    .await
}

/// A response without further headers.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

/// A redirect.
pub(crate) fn redirect(status: u16, location: &str) -> String {
    format!(
        "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n"
    )
}

/// Returns the path of a request.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

/// A listener that must not be reached.
pub(crate) struct Trap(TcpListener);

impl Trap {
    pub(crate) async fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Accepts the first connection: connections are accepted in the order in which they were opened.
    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr) {
        timeout(Duration::from_secs(10), self.0.accept()).await.unwrap().unwrap()
    }

    /// Asserts that no connection was opened before this call.
    pub(crate) async fn assert_not_reached(&self) {
        let own = TcpStream::connect(self.0.local_addr().unwrap()).await.unwrap();
        assert_eq!(self.accept().await.1, own.local_addr().unwrap(), "another connection came");
    }
}

/// A resolver with fixed addresses. Each lookup of a name uses its next entry; the last one stays.
#[derive(Debug, Default)]
pub(crate) struct FakeNames(Mutex<HashMap<String, Vec<Vec<&'static str>>>>);

impl FakeNames {
    pub(crate) fn new<const N: usize>(names: [(&str, &[&[&'static str]]); N]) -> Arc<Self> {
        let entry = |(name, lookups): (&str, &[&[&'static str]])| {
            (name.to_owned(), lookups.iter().rev().map(|addresses| addresses.to_vec()).collect())
        };
        Arc::new(Self(Mutex::new(names.into_iter().map(entry).collect())))
    }

    fn next(&self, host: &str) -> io::Result<Vec<&'static str>> {
        let mut names = self.0.lock().unwrap();
        let lookups = names.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
        if lookups.len() > 1 { Ok(lookups.pop().unwrap()) } else { Ok(lookups[0].clone()) }
    }
}

impl NameLookup for FakeNames {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let found = self.next(host).map(|addresses| {
            let addresses = addresses.into_iter().map(|text| {
                let address: IpAddr = text.parse().unwrap();
                SocketAddr::from((address, port))
            });
            addresses.collect()
        });
        Box::pin(async move { found })
    }
}

/// Returns a policy that allows [`HOST`] on this machine, without TLS, and no other private address.
pub(crate) fn policy() -> DialPolicy {
    DialPolicy {
        allow_plain_http: true,
        allow_private: vec![HOST.parse().unwrap(), "other.test".parse().unwrap()],
        names: FakeNames::new([(HOST, &[&["127.0.0.1"]]), ("other.test", &[&["127.0.0.1"]])]),
        ..DialPolicy::default()
    }
}

pub(crate) fn url(text: &str) -> Url {
    Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
