//! A probe of the isolation: a script that attempts forbidden operations.

use std::{
    fs, io,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
};

use crate::runner::{InvalidScript, Script};

const PROBE: &str = include_str!("probe.py");
/// The first line of the probe's output.
const HEADER: &str = "probed";
/// The probe's names of attempts, and the gap that each success reveals, human-readable.
const GAPS: [(&str, &str); 14] = [
    ("reads_files", "reading files of this machine"),
    ("sees_files", "names and sizes of files"),
    ("writes_files", "writing files of this machine"),
    ("changes_files", "changing permissions, times and lengths of files"),
    ("uses_devices", "devices of this machine"),
    ("network", "the network"),
    ("routes", "the network"),
    ("local_sockets", "sockets of this machine's services"),
    ("signals", "signals to processes of the same user"),
    ("sees_processes", "other processes' ids"),
    ("fills_disk", "filling the disk with many files"),
    ("many_processes", "briefly exceeding the process limit"),
    ("shares_memory", "memory beyond the limit"),
    ("pins_memory", "memory beyond the limit"),
];

/// Resources that a script must not reach, kept open for the probe.
#[derive(Debug)]
pub(super) struct ProbeTargets {
    secret: std::path::PathBuf,
    port: u16,
    name: String,
    _listener: TcpListener,
    _socket: UnixListener,
}

impl ProbeTargets {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let secret = folder.join("secret");
        fs::write(&secret, "secret")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let name = format!("{}-{port}", env!("CARGO_PKG_NAME"));
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Self { secret, port, name, _listener: listener, _socket: socket })
    }

    /// Returns the probe script.
    pub(super) fn script(&self, disk: u64, processes: u32) -> Result<Script, InvalidScript> {
        let Self { secret, port, name, .. } = self;
        let (secret, process) = (secret.display(), std::process::id());
        // The supervisor counts as one more process.
        let processes = processes + 1;
        Script::new(PROBE)?
            .with_input(format!("{secret}\n{process}\n{port}\n{name}\n{disk}\n{processes}"))
    }
}

/// Returns the gaps reported by the probe, or `None` if it did not run to its end.
pub(super) fn gaps(output: &str) -> Option<Vec<String>> {
    let mut lines = output.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    let successes: Vec<_> = lines.collect();
    let mut gaps: Vec<String> = Vec::new();
    for (attempt, gap) in GAPS {
        if successes.contains(&attempt) && gaps.last().is_none_or(|last| last != gap) {
            gaps.push(gap.to_owned());
        }
    }
    Some(gaps)
}
