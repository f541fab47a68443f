//! HTTP client for addresses that others choose: models, configuration files, servers, redirects.
//!
//! [`DialPolicy`] states which addresses may be dialed. [`GuardedClient`] enforces it at the two places
//! where an address becomes known: in the URL, when a request is built, and in the result of the name
//! resolution, when a connection is opened. A name that was public when it was checked and is private when
//! it is dialed is therefore refused. [`Fetch`] follows redirects hop by hop and checks each of them.
//! [`read_body`] bounds the body, in bytes after decompression, and the time to read it.
//!
//! Text from the other side never appears in an [`EgressError`], except for host names.

mod address;
mod body;
mod causes;
mod client;
mod connection;
mod error;
mod fetch;
mod names;
mod policy;
mod refused;
mod target;
mod tls;

pub use body::{BodyPrefix, read_body, read_prefix};
pub use causes::causes;
pub use client::{ClientOptions, ClientRedirects, GuardedClient};
pub use connection::ConnectionSignal;
pub use error::EgressError;
pub use fetch::{Fetch, Fetched, Hop, Redirect};
pub use names::{NameLookup, SystemNames};
pub use policy::DialPolicy;
pub use refused::{AddressRefused, RedirectRefused, ResolveError};
pub use target::{InvalidTarget, PrivateTarget};
pub use tls::tls_config;
