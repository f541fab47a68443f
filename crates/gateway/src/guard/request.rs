//! What holds for every request, whatever its path: an allowed host, a bounded head, and headers of the
//! response.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, uri::Authority},
    middleware::Next,
    response::Response,
};
use metrics::counter;
use rockbot_service::connections::Peer;

use super::{
    Guard,
    body::{OpenRequest, TrackedBody},
    headers::protect,
    refusal::Refusal,
};
use crate::identity::FaceName;

/// Largest head of a request, in bytes of its names and values.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The checked host of a request.
#[derive(Debug, Clone)]
pub(super) struct RequestHost(pub(super) Authority);

/// Checks the head of a request, and adds the headers of its response. The connection is in use until the
/// response has ended.
pub(crate) async fn admit(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let open = peer(&request).map(|peer| OpenRequest::new(peer.begin()));
    let mut response = match guard.hosts.check(request.uri(), request.headers()) {
        _ if head_bytes(&request) > MAX_HEAD_BYTES => Refusal::Head.into_response(None),
        None => Refusal::Host.into_response(None),
        Some(host) => {
            request.extensions_mut().insert(RequestHost(host));
            next.run(request).await
        }
    };
    let face = response.extensions().get::<FaceName>().map_or("none", |face| face.as_str());
    let status = response.status().as_u16().to_string();
    counter!("rockbot_gateway_requests_total", "face" => face, "status" => status).increment(1);
    protect(response.headers_mut());
    match open {
        Some(open) => response.map(|body| Body::new(TrackedBody::new(body, open))),
        None => response,
    }
}

/// Answers a request to a path that no route has.
pub(crate) async fn refuse_path() -> Response {
    Refusal::Path.into_response(None)
}

/// Answers a request with a method that its path does not have.
pub(crate) async fn refuse_method() -> Response {
    Refusal::Method.into_response(None)
}

/// Returns the other side of the connection. Absent where a router is called without a server.
fn peer(request: &Request) -> Option<&Peer> {
    request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer)
}

/// Returns the address that a request came from.
pub(super) fn address(request: &Request) -> Option<IpAddr> {
    peer(request).map(|peer| peer.address().ip().to_canonical())
}

fn head_bytes(request: &Request) -> usize {
    let headers: &HeaderMap = request.headers();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let names = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    names.sum::<usize>() + target
}
