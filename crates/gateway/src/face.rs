//! Faces: routes, each with the access that it requires and its limits.

use std::time::Duration;

use axum::{
    handler::Handler,
    http::Method,
    routing::{MethodFilter, MethodRouter, on},
};

use crate::identity::{FaceName, Right};

/// Largest body of a request, in bytes, unless the route has another limit.
pub const BODY_BYTES: usize = 128 * 1024;

/// Time limit until the head of a response, unless the route has another limit.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Access that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No identity; the host name of the request must still be allowed.
    Public,
    /// An identity that may use the face of the route.
    SignedIn,
    /// An identity that may use the face of the route and has this right.
    Right(Right),
}

/// Limits of the requests to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteLimits {
    /// Largest body of a request, in bytes. Default [`BODY_BYTES`].
    pub body_bytes: usize,
    /// Time limit until the head of the response. Default [`RESPONSE_TIMEOUT`].
    pub response: Duration,
    /// The rate that its requests count for. Default [`Rate::Requests`].
    pub rate: Rate,
}

/// A rate that requests count for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rate {
    /// Requests of a token that has a limit.
    #[default]
    Requests,
    /// Messages to agents, in addition: `gateway.messages_per_minute` for each person.
    Messages,
    /// Logins: five per minute and address.
    Logins,
}

impl Default for RouteLimits {
    fn default() -> Self {
        Self { body_bytes: BODY_BYTES, response: RESPONSE_TIMEOUT, rate: Rate::default() }
    }
}

/// A route: a path and its methods, with the access that it requires. There is no default for the access.
#[derive(Debug, Clone)]
pub struct Route {
    /// The methods. `HEAD` comes with `GET`.
    pub methods: Vec<Method>,
    /// The path, in the notation of axum.
    pub path: &'static str,
    /// The required access.
    pub access: Access,
    /// The limits.
    pub limits: RouteLimits,
    pub(crate) handler: MethodRouter,
}

impl Route {
    /// Creates a route for `GET`.
    #[must_use]
    pub fn get<T: 'static>(
        path: &'static str,
        access: Access,
        handler: impl Handler<T, ()>,
    ) -> Self {
        Self::on(Method::GET, MethodFilter::GET, path, access, handler)
    }

    /// Creates a route for `POST`.
    #[must_use]
    pub fn post<T: 'static>(
        path: &'static str,
        access: Access,
        handler: impl Handler<T, ()>,
    ) -> Self {
        Self::on(Method::POST, MethodFilter::POST, path, access, handler)
    }

    /// Creates a route for `DELETE`.
    #[must_use]
    pub fn delete<T: 'static>(
        path: &'static str,
        access: Access,
        handler: impl Handler<T, ()>,
    ) -> Self {
        Self::on(Method::DELETE, MethodFilter::DELETE, path, access, handler)
    }

    /// Creates a route for a service that has `methods`, and answers all others itself.
    #[must_use]
    pub fn service(
        methods: Vec<Method>,
        path: &'static str,
        access: Access,
        service: MethodRouter,
    ) -> Self {
        Self { methods, path, access, limits: RouteLimits::default(), handler: service }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(self, limits: RouteLimits) -> Self {
        Self { limits, ..self }
    }

    fn on<T: 'static>(
        method: Method,
        filter: MethodFilter,
        path: &'static str,
        access: Access,
        handler: impl Handler<T, ()>,
    ) -> Self {
        let handler = on(filter, handler);
        Self { methods: vec![method], path, access, limits: RouteLimits::default(), handler }
    }
}

/// The routes of one protocol.
#[derive(Debug, Clone)]
pub struct Face {
    /// The name.
    pub name: FaceName,
    /// The routes.
    pub routes: Vec<Route>,
}
