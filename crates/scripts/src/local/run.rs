//! One script from its request to its end, whatever way that takes.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::Path,
    pin::pin,
    time::Duration,
};

use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{Executed, ToolFailure};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixStream, unix::pipe},
    time::{Instant, sleep_until},
};

use super::{options::LocalOptions, server::Descriptors};
use crate::{
    ended::Ended,
    output::{Beginning, End},
    runner::Script,
};

/// How long a script may take from its request to its first line.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a script that is to end may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what was printed before the end may take to arrive.
const REST_TIMEOUT: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 64 * 1024;
/// All that a keeper says are three short lines.
const MAX_TOLD_BYTES: u64 = 16 * 1024;
/// For an ending whose exit code is no number.
const UNTOLD_EXIT: i32 = 255;

/// Our ends of what a script is given.
#[derive(Debug)]
pub(super) struct Ends {
    conversation: UnixStream,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

/// Both ends of all three.
pub(super) fn connect() -> io::Result<(Ends, Descriptors)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let (stdout, stdout_theirs) = io::pipe()?;
    let (stderr, stderr_theirs) = io::pipe()?;
    let ends = Ends {
        conversation: UnixStream::from_std(ours)?,
        stdout: pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?,
        stderr: pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?,
    };
    let conversation = theirs.into();
    let (stdout, stderr) = (stdout_theirs.into(), stderr_theirs.into());
    Ok((ends, Descriptors { conversation, stdout, stderr }))
}

/// Where a script finds things.
#[derive(Debug)]
pub(super) struct Places<'a> {
    /// The name of its set of packages, as the jail knows it.
    pub(super) packages: &'a str,
    /// Where it imports them from.
    pub(super) imports: Option<&'a Path>,
    /// Its folder.
    pub(super) folder: &'a Path,
}

/// A length and fields with a NUL between them, which neither script nor input has.
pub(super) fn request(script: &Script, places: &Places<'_>) -> Vec<u8> {
    let seconds = script.timeout().as_secs_f64().ceil().to_string();
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let (imports, folder) = (places.imports.map(path).unwrap_or_default(), path(places.folder));
    let given = if script.input().is_some() { "1" } else { "0" };
    let input = script.input().unwrap_or_default();
    let fields =
        [&*seconds, places.packages, &*imports, &*folder, given, script.code(), input].join("\0");
    let length = u32::try_from(fields.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], fields.as_bytes()].concat()
}

/// Why there is nothing to tell of a script.
#[derive(Debug)]
pub(super) enum Lost {
    /// The process that was to run it was gone before it began.
    Unbegun,
    /// Its sandbox could not be set up.
    Unwalled(String),
    /// Anything else; final.
    Failed(ToolFailure),
}

/// Who wants it to stop, and when.
#[derive(Debug)]
pub(super) struct Until<F> {
    /// The deadline of the call.
    pub(super) deadline: Instant,
    /// Returns when the call or the runner is given up.
    pub(super) given_up: F,
}

/// Why a script is ended that broke no limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum GivenUp {
    Cancelled,
    Closing,
}

/// Follows a script to its end, which it makes when a limit asks for it.
///
/// # Cancellation
/// Dropped, it ends the script: the keeper sees the conversation close.
pub(super) async fn follow(
    ends: Ends,
    request: &[u8],
    script: &Script,
    options: &LocalOptions,
    until: Until<impl Future<Output = GivenUp>>,
) -> Result<Ended, Lost> {
    let Ends { conversation, mut stdout, mut stderr } = ends;
    let (reader, mut writer) = conversation.into_split();
    let mut lines = BufReader::new(reader.take(MAX_TOLD_BYTES)).lines();
    let (asked, mut given_up) = (Instant::now(), pin!(until.given_up));
    let mut limit = until.deadline.min(asked + BEGIN_TIMEOUT);
    let after = until.deadline.min(asked + script.timeout()) - asked;
    let too_late = |limit| if limit == until.deadline { Stop::Time } else { Stop::Unready };
    // Until all of the request is written, nothing can run.
    let unasked = tokio::select! {
        biased;
        reason = &mut given_up => Some(Stop::GivenUp(reason)),
        () = sleep_until(limit) => Some(too_late(limit)),
        written = writer.write_all(request) => {
            written.map_err(|_| Lost::Unbegun)?;
            None
        }
    };
    if let Some(failure) = unasked.and_then(|stop| stop.failure(Executed::No, after)) {
        return Err(Lost::Failed(failure));
    }
    let (mut out, mut err) = (Beginning::new(options.stdout_bytes), End::new(options.stderr_bytes));
    let (mut out_open, mut err_open) = (true, true);
    let mut chunks = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let (mut told, mut stop) = (Told::default(), None);
    while told.ended.is_none() || out_open || err_open {
        let wish = tokio::select! {
            line = lines.next_line(), if told.ended.is_none() => {
                let Ok(Some(line)) = line else { break };
                let begins = told.take(&line);
                if told.ended.is_some() {
                    limit = Instant::now() + REST_TIMEOUT;
                } else if begins && stop.is_none() {
                    limit = until.deadline.min(Instant::now() + script.timeout());
                }
                None
            }
            read = stdout.read(&mut chunks.0), if out_open => {
                let length = read.unwrap_or(0);
                out_open = length > 0;
                (!out.take(&chunks.0[..length])).then_some(Stop::Output)
            }
            read = stderr.read(&mut chunks.1), if err_open => {
                let length = read.unwrap_or(0);
                err_open = length > 0;
                err.take(&chunks.1[..length]);
                None
            }
            reason = &mut given_up, if stop.is_none() && told.ended.is_none() => {
                Some(Stop::GivenUp(reason))
            }
            () = sleep_until(limit) => {
                if stop.is_some() || told.ended.is_some() {
                    break;
                }
                Some(if told.started.is_some() { Stop::Time } else { too_late(limit) })
            }
        };
        if wish.is_some() && stop.is_none() {
            stop = wish;
            if told.ended.is_none() {
                // The sign for the keeper, who still tells how it went.
                let _ = writer.shutdown().await;
                limit = Instant::now() + END_TIMEOUT;
            }
        }
    }
    told.conclude(stop, (out, err), after)
}

#[derive(Debug, Clone, Copy)]
enum Stop {
    Output,
    /// Its own time, or the caller's.
    Time,
    /// Ours to begin.
    Unready,
    GivenUp(GivenUp),
}

impl Stop {
    /// What the caller is told, unless that is an outcome.
    fn failure(self, executed: Executed, after: Duration) -> Option<ToolFailure> {
        let unavailable =
            |message: &str| ToolFailure::Unavailable { message: message.into(), executed };
        match self {
            Self::Output => None,
            Self::Time => Some(ToolFailure::TimedOut { after, executed, repeatable: false }),
            Self::Unready => Some(unavailable("the script did not begin in time; try again later")),
            Self::GivenUp(GivenUp::Cancelled) => Some(ToolFailure::Cancelled { executed }),
            Self::GivenUp(GivenUp::Closing) => Some(unavailable("scripts are no longer run here")),
        }
    }
}

/// What the keeper and the script's process have said.
#[derive(Debug, Default)]
struct Told {
    started: Option<Instant>,
    ended: Option<Ending>,
    failed: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Ending {
    at: Instant,
    exit_code: i32,
    memory: bool,
}

impl Told {
    /// Takes a line; `true` when it says that the script begins.
    fn take(&mut self, line: &str) -> bool {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "started" => self.started = Some(Instant::now()),
            "failed" => self.failed = Some(rest.to_owned()),
            "ended" => {
                let (code, limit) = rest.split_once(' ').unwrap_or((rest, ""));
                let exit_code = code.parse().unwrap_or(UNTOLD_EXIT);
                self.ended =
                    Some(Ending { at: Instant::now(), exit_code, memory: limit == "memory" });
            }
            _ => {}
        }
        word == "started"
    }

    fn executed(&self) -> Executed {
        match (self.started, self.ended) {
            (Some(_), _) => Executed::Yes,
            (None, Some(_)) => Executed::No,
            (None, None) => Executed::Unknown,
        }
    }

    fn conclude(
        self,
        stop: Option<Stop>,
        (out, err): (Beginning, End),
        after: Duration,
    ) -> Result<Ended, Lost> {
        let unknown = |message: String| Err(Lost::Failed(ToolFailure::OutcomeUnknown { message }));
        match (self.failed.as_ref(), self.started) {
            (Some(reason), None) => return Err(Lost::Unwalled(reason.clone())),
            (Some(reason), Some(_)) => return unknown(format!("its keeper failed: {reason}")),
            (None, _) => {}
        }
        if let Some(failure) = stop.and_then(|stop| stop.failure(self.executed(), after)) {
            return Err(Lost::Failed(failure));
        }
        match (self.started, self.ended) {
            (Some(started), Some(ending)) => {
                let printed_too_much = stop.map(|_| ScriptLimit::Output);
                Ok(Ended {
                    stdout: out.into_text(),
                    stderr: err.into_text(),
                    exit_code: ending.exit_code,
                    ended_by: printed_too_much.or(ending.memory.then_some(ScriptLimit::Memory)),
                    elapsed: ending.at - started,
                })
            }
            (None, _) => Err(Lost::Unbegun),
            (Some(_), None) => unknown("the process that kept the script is gone".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolErrorCode;

    use super::*;

    fn concluded(lines: &[&str], stop: Option<Stop>) -> Result<Ended, Lost> {
        let mut told = Told::default();
        for line in lines {
            told.take(line);
        }
        told.conclude(stop, (Beginning::new(9), End::new(9)), Duration::from_secs(1))
    }

    #[test]
    fn nothing_that_goes_wrong_after_the_first_line_is_told_as_not_run() {
        assert!(matches!(concluded(&["failed x"], None), Err(Lost::Unwalled(_))));
        assert!(matches!(concluded(&[], None), Err(Lost::Unbegun)));
        for lines in [&["started", "failed x"][..], &["started"]] {
            let Err(Lost::Failed(failure)) = concluded(lines, None) else { unreachable!() };
            assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown);
        }
    }

    #[test]
    fn our_time_to_begin_is_not_told_as_the_scripts() {
        for (lines, executed) in [
            (&[][..], Executed::Unknown),
            (&["ended 137 -"], Executed::No),
            (&["started"], Executed::Yes),
        ] {
            let Err(Lost::Failed(failure)) = concluded(lines, Some(Stop::Unready)) else {
                unreachable!()
            };
            assert_eq!(
                (failure.code(), failure.executed()),
                (ToolErrorCode::Unavailable, executed)
            );
        }
    }
}
