//! The transports to servers that are not on this machine: streamable HTTP, the HTTP with SSE of
//! 2024, and WebSocket. Each has a `connect` that takes a [`RemoteServer`].
//!
//! What they share: only what the [`DialPolicy`] allows is dialled; a message that can't be read
//! ends the one call it was meant for; every wait and every buffer has a bound.

mod address;
pub(crate) mod dial;
mod event_stream;
mod failure;
pub mod http;
pub(crate) mod peer;
mod server;
pub mod sse;
mod tls;
pub mod websocket;

pub use dial::{AddressRefused, BadTarget, DialPolicy, DnsFailed, PrivateTarget, RedirectRefused};
pub use failure::{ConnectError, FailureClass, call_failure_class, failure_class};
pub use server::{RemoteServer, TokenSource};
