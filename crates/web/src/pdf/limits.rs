//! Limits of the child process, and its exit codes.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// The largest document, in bytes.
pub(super) const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// The longest text, in bytes. Notes of the reader come on top.
pub(super) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// The maximum number of pages that are read.
pub(super) const MAX_PAGES: usize = 300;
/// The address space of the child, in bytes.
const MAX_MEMORY_BYTES: u64 = 512 * 1024 * 1024;
/// The processor time of the child, in seconds.
const MAX_CPU_SECONDS: u64 = 10;

/// The child's exit code for a damaged document (`EX_DATAERR`).
pub(super) const EXIT_DAMAGED: u8 = 65;
/// The child's exit code for a document that needs a password (`EX_NOPERM`).
pub(super) const EXIT_PROTECTED: u8 = 77;
/// The child's exit code when it cannot limit itself or use its standard streams (`EX_OSERR`).
pub(super) const EXIT_SYSTEM: u8 = 71;

/// Limits this process: memory, processor time, no new files, sockets or processes, no core dump.
///
/// # Errors
/// When the system refuses a limit.
pub(super) fn limit_this_process() -> io::Result<()> {
    let limits = [
        (Resource::As, MAX_MEMORY_BYTES),
        (Resource::Cpu, MAX_CPU_SECONDS),
        (Resource::Core, 0),
        // Open ones stay open.
        (Resource::Nofile, 0),
        (Resource::Nproc, 0),
    ];
    for (resource, limit) in limits {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}
