//! The parent's side of the child process.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rockbot_child::{Pipes, ProcessGroup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::READ_PDF_ARGUMENT;
use super::failure::PdfFailure;
use super::limits::{EXIT_DAMAGED, EXIT_PROTECTED, MAX_DOCUMENT_BYTES, MAX_PAGES, MAX_TEXT_BYTES};
use crate::pdf_reader::{PdfError, PdfReader};

/// The number of documents that are read at the same time.
const CONCURRENCY: usize = 2;
/// The time limit for one document. Its processor time is limited separately.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The largest output of the child: the text, the line before each page and the notes.
const MAX_OUTPUT_BYTES: usize = MAX_TEXT_BYTES + (MAX_PAGES + 1) * 64;
/// The running program on Linux, also without its file.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// mimalloc would reserve 1 GiB of address space at once, more than the child's limit.
const ALLOCATOR_RESERVE: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "32MiB");

/// Reads PDF documents in child processes, two at a time. Clones share this limit.
#[derive(Debug, Clone)]
pub struct PdfProcess {
    program: PathBuf,
    permits: Arc<Semaphore>,
}

impl PdfProcess {
    /// Uses a program that runs [`read_pdf_main`](super::read_pdf_main) when its first argument is
    /// [`READ_PDF_ARGUMENT`].
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self { program, permits: Arc::new(Semaphore::new(CONCURRENCY)) }
    }

    /// Uses the running program. On Linux it stays usable when an upgrade replaces or deletes its file.
    ///
    /// # Errors
    /// When its path cannot be determined.
    pub fn current_program() -> io::Result<Self> {
        let own = PathBuf::from(OWN_PROGRAM);
        Ok(Self::new(if cfg!(target_os = "linux") { own } else { std::env::current_exe()? }))
    }

    /// Returns the text of a document of at most 16 MiB: at most 300 pages and 1 MiB, each page after a
    /// line `--- page N ---`. If reading stops early, the last line is a note in dashes.
    ///
    /// Takes at most 20 s after it has waited for other documents, and ends at the deadline. Dropping the
    /// future kills the child.
    ///
    /// # Errors
    /// See [`PdfFailure`].
    pub async fn read(&self, document: Vec<u8>, deadline: Instant) -> Result<String, PdfFailure> {
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(PdfFailure::TooLarge { max_bytes: MAX_DOCUMENT_BYTES });
        }
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        let _permit = permit.map_err(|_| PdfFailure::TimedOut)?.map_err(io::Error::other)?;
        let (mut group, pipes) = ProcessGroup::spawn(&mut self.command())?;
        let mut output = Vec::new();
        let deadline = deadline.min(Instant::now() + TIME_LIMIT);
        let ended = timeout_at(deadline, async {
            transfer(pipes, document, &mut output).await?;
            group.wait_for_leader().await;
            Ok::<(), io::Error>(())
        })
        .await;
        let status = group.finish().await;
        let outcome = match ended {
            Err(_) => ChildOutcome::TimedOut,
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(())) => ChildOutcome::from_status(status)?,
        };
        text(&output, outcome)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(READ_PDF_ARGUMENT).env_clear().env(ALLOCATOR_RESERVE.0, ALLOCATOR_RESERVE.1);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

impl PdfReader for PdfProcess {
    fn read<'a>(
        &'a self,
        bytes: Vec<u8>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<String, PdfError>> {
        Box::pin(async move { Ok(PdfProcess::read(self, bytes, deadline).await?) })
    }
}

/// Writes the document and reads the output at the same time.
async fn transfer(pipes: Pipes, document: Vec<u8>, output: &mut Vec<u8>) -> io::Result<()> {
    let (Some(mut stdin), Some(stdout)) = (pipes.stdin, pipes.stdout) else {
        return Err(io::Error::other("the child has no standard streams"));
    };
    let write = async move {
        // A child that ends early closes the pipe; its status has the reason.
        let _ = stdin.write_all(&document).await;
    };
    let (read, ()) = tokio::join!(read_output(stdout, output), write);
    read
}

async fn read_output(stdout: ChildStdout, output: &mut Vec<u8>) -> io::Result<()> {
    stdout.take(MAX_OUTPUT_BYTES as u64 + 1).read_to_end(output).await?;
    if output.len() > MAX_OUTPUT_BYTES {
        return Err(io::Error::other("the child wrote too much"));
    }
    Ok(())
}

/// Outcome of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildOutcome {
    Complete,
    Damaged,
    Protected,
    /// A limit of the process: memory, processor time or stack.
    Killed,
    TimedOut,
}

impl ChildOutcome {
    fn from_status(status: Option<ExitStatus>) -> io::Result<Self> {
        let code = status.ok_or_else(|| io::Error::other("the child did not end"))?.code();
        match code {
            Some(0) => Ok(Self::Complete),
            Some(code) if code == i32::from(EXIT_DAMAGED) => Ok(Self::Damaged),
            Some(code) if code == i32::from(EXIT_PROTECTED) => Ok(Self::Protected),
            None => Ok(Self::Killed),
            Some(code) => Err(io::Error::other(format!("the child ended with code {code}"))),
        }
    }
}

/// Returns the text that the child wrote, with a note if it did not end by itself.
fn text(output: &[u8], outcome: ChildOutcome) -> Result<String, PdfFailure> {
    // A killed child may leave half a character.
    let mut text = String::from_utf8_lossy(output).into_owned();
    let has_text = text.lines().any(|line| !line.trim().is_empty() && !line.starts_with("--- "));
    match outcome {
        ChildOutcome::Damaged => return Err(PdfFailure::Damaged),
        ChildOutcome::Protected => return Err(PdfFailure::Protected),
        ChildOutcome::Complete if !has_text => return Err(PdfFailure::NoText),
        ChildOutcome::Killed if !has_text => return Err(PdfFailure::TooComplex),
        ChildOutcome::TimedOut if !has_text => return Err(PdfFailure::TimedOut),
        ChildOutcome::Complete => {}
        ChildOutcome::Killed => {
            text.push_str("\n--- the next page needs too much memory or time ---\n");
        }
        ChildOutcome::TimedOut => {
            text.push_str("\n--- the next page was not read in time ---\n");
        }
    }
    Ok(text)
}
