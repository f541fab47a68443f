//! The transports: `stdio` to a program of this machine; and to servers elsewhere streamable HTTP, the
//! HTTP with SSE of 2024, and WebSocket. Each of these has a `connect` that takes a [`RemoteServer`].
//!
//! What they share: a message that can't be read ends the one call it was meant for; every wait and
//! every buffer has a bound; and only what the [`DialPolicy`] allows is dialled.

mod address;
pub(crate) mod dial;
mod event_stream;
mod failure;
pub mod http;
pub(crate) mod peer;
mod remote_server;
pub mod sse;
pub(crate) mod stdio;
mod tls;
pub mod websocket;

pub use dial::{AddressRefused, BadTarget, DialPolicy, DnsFailed, PrivateTarget, RedirectRefused};
pub use failure::{ConnectError, FailureClass, call_failure_class, failure_class};
pub use remote_server::{RemoteServer, TokenSource};
