//! The store port on SQLite and PostgreSQL.
//!
//! - [`SqliteStore`]: a file, for processes on one machine;
//! - [`PostgresStore`]: a database, for processes on many machines;
//! - [`connect()`]: opens the store at a [`StoreUrl`](rockbot_store::StoreUrl).
//!
//! Both pass the conformance suite of the port. Only binaries depend on this crate; libraries take an
//! `Arc<dyn Store>`.

mod connect;
pub mod postgres;
mod row;
pub mod sqlite;

pub use connect::{connect, connect_with_retry};
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
