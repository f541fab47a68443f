//! What holds for the requests to a route: its access, its rate and its bounds.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, Method, header},
    middleware::Next,
    response::Response,
};
use tokio::time::timeout;
use tracing::Instrument;

use super::{
    Guard, body,
    hosts::is_from_other_site,
    refusal::Refusal,
    request::{RequestHost, address},
    span::{answered, request_span},
};
use crate::{
    face::{Access, Rate, RouteLimits},
    identity::{Credential, FaceName, Identity},
};

/// A route behind its guard.
#[derive(Clone)]
pub(crate) struct GuardedRoute {
    pub(crate) guard: Arc<Guard>,
    pub(crate) face: FaceName,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) limits: RouteLimits,
}

/// Passes a request on to its route, with its [`Identity`] and its address in the extensions and its whole body, or
/// refuses it.
pub(crate) async fn check(
    State(route): State<GuardedRoute>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match route.admit(request).await {
        Ok(request) => {
            let span = request_span(&request, route.path, route.face);
            let response = next.run(request).instrument(span.clone());
            let response = match timeout(route.limits.response, response).await {
                Ok(response) => response,
                Err(_) => Refusal::ResponseTimeout.into_response(Some(route.face)),
            };
            answered(&span, response.status());
            response
        }
        Err(refusal) => refusal.into_response(Some(route.face)),
    };
    response.extensions_mut().insert(route.face);
    response
}

/// Address that a request came from, for routes without an identity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) Option<IpAddr>);

impl GuardedRoute {
    /// Checks a request in the order of the costs, its body last.
    async fn admit(&self, request: Request) -> Result<Request, Refusal> {
        let from = address(&request);
        let identity = match self.access {
            Access::Public => None,
            Access::SignedIn | Access::Right(_) => {
                Some(self.guard.identify(request.headers(), from)?)
            }
        };
        self.check_origin(&request, identity.as_ref())?;
        if let Some(identity) = &identity {
            self.authorize(identity)?;
        }
        self.guard.count(self.limits.rate, identity.as_ref(), from)?;
        let (mut parts, body) = request.into_parts();
        let body = body::read(&parts.headers, body, self.limits.body_bytes).await?;
        if let Some(identity) = identity {
            parts.extensions.insert(identity);
        }
        parts.extensions.insert(ClientAddress(from));
        Ok(Request::from_parts(parts, Body::from(body)))
    }

    fn authorize(&self, identity: &Identity) -> Result<(), Refusal> {
        if !identity.faces.contains(&self.face) {
            return Err(Refusal::Face(self.face));
        }
        match self.access {
            Access::Right(right) if !identity.has(right) => Err(Refusal::Right(right)),
            Access::Right(_) | Access::SignedIn | Access::Public => Ok(()),
        }
    }

    /// Refuses requests that a page of another site can make a browser send. A browser adds cookies by itself,
    /// and a proxy adds its headers to whatever a browser sends; a token is only sent by a program that has it.
    fn check_origin(&self, request: &Request, identity: Option<&Identity>) -> Result<(), Refusal> {
        let headers = request.headers();
        let host = request.extensions().get::<RequestHost>().ok_or(Refusal::Host)?;
        let is_same = self.guard.hosts.is_same_origin(headers, &host.0);
        if is_same == Some(false) {
            return Err(Refusal::Origin);
        }
        let has_token = identity.is_some_and(|identity| identity.credential == Credential::Token);
        let is_protected = identity.is_some() || self.limits.rate == Rate::Logins;
        if has_token || !is_protected {
            return Ok(());
        }
        if is_from_other_site(headers) {
            return Err(Refusal::Origin);
        }
        if is_safe(request.method()) {
            return Ok(());
        }
        if is_same.is_none() {
            return Err(Refusal::Origin);
        }
        // A form of another site cannot send JSON.
        if request.body().is_end_stream() || is_json(headers) {
            Ok(())
        } else {
            Err(Refusal::MediaType)
        }
    }
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// Returns whether the body of a request is JSON by its content type, which no form of another page can have.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| {
        let kind = kind.trim();
        kind.eq_ignore_ascii_case("application/json")
            || kind.eq_ignore_ascii_case("application/a2a+json")
    })
}
