//! Child processes and Ctrl-C.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::broker::{ProcessGuard, StopSignal, tail, wait_before_poll};
use crate::console;

/// Time limit for the installation of the packages of one peer. One minute is usual.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The task was interrupted by Ctrl-C or SIGTERM.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Installs the signal handlers. The first Ctrl-C or SIGTERM makes the task stop its child processes and
/// exit. The second one exits at once; the process guards then end the children.
pub(crate) fn listen_for_interrupts() -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&INTERRUPTED))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED)))
            .context("cannot listen for Ctrl-C")?;
    }
    Ok(())
}

/// Returns [`Interrupted`] after Ctrl-C or SIGTERM.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
}

/// Runs a program with inherited output in a new process group. The group receives interrupts and does
/// not outlive this process.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = wait(command)?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

/// Runs a program with its output in the file `log`. The error contains the end of the log.
pub(crate) fn run_quietly(command: &mut Command, log: &Path) -> Result<()> {
    run_with_log(command, log, None)
}

/// Like [`run_quietly`], for the installation of packages from a registry, within a time limit.
pub(crate) fn run_installer(command: &mut Command, log: &Path) -> Result<()> {
    run_with_log(command, log, Some(INSTALL_LIMIT))
}

fn run_with_log(command: &mut Command, log: &Path, limit: Option<Duration>) -> Result<()> {
    let name = describe(command);
    let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    command.stdout(output.try_clone()?).stderr(output);
    match wait_until(command, limit.map(|limit| Instant::now() + limit))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("`{name}` failed ({status}):\n{}", tail(log)),
        None => {
            let limit = limit.unwrap_or_default();
            bail!("`{name}` took more than {limit:?}:\n{}", tail(log))
        }
    }
}

/// Runs a program with its output in the file `log`, and prints all of it if the program fails.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let name = describe(command);
    let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let status = wait(command.stdout(output.try_clone()?).stderr(output))?;
    if !status.success() {
        let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        console::heading(format_args!("{name}\n{}", text.unwrap_or_default()));
        bail!("`{name}` failed ({status}); see {}", log.display());
    }
    Ok(())
}

/// Runs a program, prints each line of its standard error and passes the line to `inspect`.
pub(crate) fn run_lines(command: &mut Command, mut inspect: impl FnMut(&str) + Send) -> Result<()> {
    let name = describe(command);
    let status = std::thread::scope(|scope| -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
        let printing = scope.spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                console::line(format_args!("{line}"));
                inspect(&line);
            }
        });
        command.stderr(writer);
        let status = wait(command);
        // The command still holds the write end of the pipe.
        command.stderr(Stdio::null());
        printing.join().map_err(|_| anyhow!("the thread that prints the output panicked"))?;
        status
    })?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

/// Runs a program within a time limit and returns its standard output. The error contains the end of
/// both outputs.
pub(crate) fn run_captured(command: &mut Command, limit: Duration) -> Result<String> {
    let name = describe(command);
    let folder = tempfile::tempdir()?;
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let status = wait_until(command, Some(Instant::now() + limit))?;
    let stdout = String::from_utf8_lossy(&std::fs::read(&out)?).into_owned();
    match status {
        Some(status) if status.success() => Ok(stdout),
        Some(status) => bail!("`{name}` failed ({status}):\n{}\n{}", tail(&out), tail(&err)),
        None => bail!("`{name}` took more than {limit:?}:\n{}\n{}", tail(&out), tail(&err)),
    }
}

/// Returns the trimmed standard output of a short program, or `None` if the program is missing or
/// fails.
pub(crate) fn stdout(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn wait(command: &mut Command) -> Result<ExitStatus> {
    wait_until(command, None)?.context("a program without a deadline was stopped")
}

/// Waits for a program. Stops it and returns `None` at the deadline.
fn wait_until(command: &mut Command, deadline: Option<Instant>) -> Result<Option<ExitStatus>> {
    check_interrupt()?;
    let mut guard = ProcessGuard::start(StopSignal::Terminate, None)?;
    let mut child = command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{}`", describe(command)))?;
    guard.watch(&child)?;
    loop {
        if let Some(status) = child.try_wait()? {
            guard.dismiss();
            return Ok(Some(status));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            guard.release();
            child.wait()?;
            return Ok(None);
        }
        if let Err(interrupted) = check_interrupt() {
            guard.release();
            child.wait()?;
            return Err(interrupted);
        }
        wait_before_poll();
    }
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let arguments = std::iter::once(program).chain(command.get_args());
    arguments.map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
