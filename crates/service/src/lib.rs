//! What every process does alike: read its configuration, log, notice signals, and leave with an
//! exit code that says why.
//!
//! - [`config`]: layers of configuration, with all problems reported at once;
//! - [`sections`]: the sections that several processes share;
//! - [`logging`]: where log lines go;
//! - [`shutdown`]: SIGTERM and Ctrl-C as a token;
//! - [`process`]: a main function in one call;
//! - [`exit`]: the exit codes.

pub mod config;
pub mod exit;
pub mod logging;
pub mod process;
pub mod sections;
pub mod shutdown;

pub use config::{ConfigProblems, Configuration};
pub use process::{Process, ServeError};
pub use sections::{BusSection, LogFormat, LogSection, Profile, ServiceSection, TlsSection};
pub use shutdown::{Interrupt, Shutdown, interrupted};
