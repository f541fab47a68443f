//! Refused requests, as responses.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::identity::{FaceName, Right};

/// Why the guard refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The `Host` header names no allowed host.
    Host,
    /// The head of the request is too large.
    Head,
    /// No credential.
    Unauthenticated,
    /// A token that is unknown or revoked.
    InvalidToken,
    /// A login code that is unknown, was used, or has expired.
    InvalidCode,
    /// A web page of another origin sent the request, or it is unknown which one did.
    Origin,
    /// The body is not JSON.
    MediaType,
    /// The identity may not use the face.
    Face(FaceName),
    /// The identity lacks the right.
    Right(Right),
    /// Too many requests.
    Rate {
        /// Time until the next one is accepted.
        retry_after: Duration,
    },
    /// The body is too large.
    BodySize {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The body arrived too slowly.
    BodyTimeout,
    /// The body ended early.
    BodyBroken,
    /// The response took too long.
    ResponseTimeout,
    /// No route has the path.
    Path,
    /// The route has other methods.
    Method,
}

impl Refusal {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Head => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Unauthenticated | Self::InvalidToken | Self::InvalidCode => {
                StatusCode::UNAUTHORIZED
            }
            Self::Origin | Self::Face(_) | Self::Right(_) => StatusCode::FORBIDDEN,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Rate { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::BodySize { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Host => "foreign_host",
            Self::Unauthenticated | Self::InvalidToken | Self::InvalidCode => "unauthorized",
            Self::Origin => "foreign_origin",
            Self::Face(_) | Self::Right(_) => "forbidden",
            Self::MediaType => "unsupported_media_type",
            Self::Rate { .. } => "rate_limited",
            Self::Head | Self::BodySize { .. } => "too_large",
            Self::BodyTimeout => "request_timeout",
            Self::BodyBroken => "invalid_request",
            Self::ResponseTimeout => "timeout",
            Self::Path => "not_found",
            Self::Method => "method_not_allowed",
        }
    }

    pub(crate) fn detail(self) -> String {
        let text = match self {
            Self::Host => {
                "the host name of the request is not allowed; add it to gateway.allowed_hosts"
            }
            Self::Head => "the head of the request exceeds 16 KiB; send fewer or shorter headers",
            Self::Unauthenticated => {
                "no credential; open a login link, or send an Authorization header with a bearer token"
            }
            Self::InvalidToken => {
                "unknown or revoked token; create one with `rockbot gateway token new`"
            }
            Self::InvalidCode => {
                "the login link is unknown, was used, or has expired; start the gateway again for a new one"
            }
            Self::Origin => {
                "the Origin header is missing or names another site; send the request from a page of the \
                 gateway, or with a bearer token and without an Origin"
            }
            Self::Face(face) => {
                return format!(
                    "this identity may not use the face {:?}; create a token for it",
                    face.as_str()
                );
            }
            Self::Right(right) => {
                return format!(
                    "this identity lacks the right {:?}; grant it in gateway.groups or to the token",
                    right.as_str()
                );
            }
            Self::MediaType => "the body is not JSON; send it with Content-Type: application/json",
            Self::Rate { retry_after } => {
                return format!("too many requests; try again in {} s", seconds(retry_after));
            }
            Self::BodySize { limit } => {
                return format!("the body exceeds {limit} bytes; send less");
            }
            Self::BodyTimeout => "the body did not arrive within 10 s; send it faster",
            Self::BodyBroken => "the body ended early; send the request again",
            Self::ResponseTimeout => "no response in time; the request may still take effect",
            Self::Path => "no such path",
            Self::Method => "the path has other methods; see the Allow header",
        };
        text.to_owned()
    }

    /// Returns whether the request took effect: only one that was passed on may have.
    fn executed(self) -> &'static str {
        if self == Self::ResponseTimeout { "unknown" } else { "no" }
    }

    /// Returns the response in the form of the face.
    pub(crate) fn into_response(self, face: Option<FaceName>) -> Response {
        let (status, code, detail) = (self.status(), self.code(), self.detail());
        let mut response = if face == Some(FaceName::Openai) {
            let kind = match status {
                StatusCode::UNAUTHORIZED => "authentication_error",
                StatusCode::FORBIDDEN => "permission_error",
                StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
                status if status.is_server_error() => "server_error",
                _ => "invalid_request_error",
            };
            let error = json!({"message": detail, "type": kind, "param": null, "code": code,
                "executed": self.executed()});
            (status, Json(json!({"error": error}))).into_response()
        } else {
            let title = status.canonical_reason().unwrap_or_default();
            let problem = json!({
                "type": "about:blank",
                "title": title,
                "status": status.as_u16(),
                "code": code,
                "detail": detail,
                "executed": self.executed(),
            });
            let kind = HeaderValue::from_static("application/problem+json");
            let mut response = (status, Json(problem)).into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        };
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::Rate { retry_after } = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds(retry_after)));
        }
        response
    }
}

/// Returns whole seconds, rounded up, at least 1.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}
