//! Transports: `stdio` for local programs; streamable HTTP, HTTP with SSE (2024-11-05) and WebSocket
//! for remote servers. The remote ones have a `connect` that takes a [`RemoteServer`].
//!
//! In all of them, an unreadable message fails the one call that it answers, every wait and every
//! buffer is bounded, and only addresses that the [`DialPolicy`] allows are dialed.

mod describe;
mod event_stream;
mod failure;
pub mod http;
pub(crate) mod peer;
mod remote_server;
pub mod sse;
pub(crate) mod stdio;
pub mod websocket;

pub(crate) use describe::{describe, describe_handshake, describe_request};
pub use failure::{ConnectError, FailureClass, call_failure_class, failure_class};
pub(crate) use failure::{missing_scope, status_text};
pub use remote_server::{RemoteServer, TokenSource};
pub use rockbot_egress::{
    AddressRefused, DialPolicy, InvalidTarget, PrivateTarget, RedirectRefused, ResolveError,
};
