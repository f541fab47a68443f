//! The store port on SQL databases.
//!
//! - [`SqliteStore`]: in a file, for the processes of one machine;
//! - [`PostgresStore`]: in a database, for the processes of many machines;
//! - [`connect()`]: opens the store that a [`StoreUrl`](rockbot_store::StoreUrl) names.
//!
//! Both pass the conformance suite of the port. Only programs name this crate: libraries take an
//! `Arc<dyn Store>`.

mod connect;
pub mod postgres;
mod row;
pub mod sqlite;

pub use connect::{connect, connect_patiently};
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
