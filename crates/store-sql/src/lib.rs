//! The ports of stores and logs on SQLite and PostgreSQL.
//!
//! - [`SqliteStore`]: a file, for processes on one machine;
//! - [`PostgresStore`]: a database, for processes on many machines;
//! - [`connect()`]: opens the store at a [`StoreUrl`](rockbot_store::StoreUrl), and
//!   [`connect_stores()`] with its logs.
//!
//! Both pass the conformance suites of the ports. Only binaries depend on this crate; libraries take an
//! `Arc<dyn Store>` or `Arc<dyn Log>`.

mod append;
mod change_queue;
mod connect;
pub mod postgres;
mod row;
pub mod sqlite;

pub use connect::{connect, connect_stores, connect_stores_with_retry, connect_with_retry};
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
