//! What a jail really keeps scripts from: found out by a script that tries.

use std::{
    fs, io,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
};

use crate::runner::{Script, UnusableScript};

const PROBE: &str = include_str!("probe.py");
/// What the probe begins with, whatever it finds.
const TRIED: &str = "tried";
/// What the probe calls an attempt that worked, and what that leaves open, in words for people.
const OPEN: [(&str, &str); 12] = [
    ("reads_files", "reading files of this machine"),
    ("sees_files", "learning names and sizes of files"),
    ("writes_files", "writing files of this machine"),
    ("changes_files", "changing rights, times and lengths of files"),
    ("uses_devices", "devices of this machine"),
    ("network", "the network"),
    ("routes", "the network"),
    ("local_sockets", "sockets of this machine's services"),
    ("signals", "signals to processes of the same user"),
    ("sees_processes", "learning which processes there are"),
    ("fills_disk", "filling the disk with many files"),
    ("many_processes", "starting too many processes for a moment"),
];

/// Things that no script may reach, held ready for the attempt.
#[derive(Debug)]
pub(super) struct Bait {
    secret: std::path::PathBuf,
    port: u16,
    name: String,
    _listener: TcpListener,
    _socket: UnixListener,
}

impl Bait {
    pub(super) fn lay(folder: &Path) -> io::Result<Self> {
        let secret = folder.join("secret");
        fs::write(&secret, "secret")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let name = format!("{}-{port}", env!("CARGO_PKG_NAME"));
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Self { secret, port, name, _listener: listener, _socket: socket })
    }

    /// The script that goes for it.
    pub(super) fn script(&self, disk: u64, processes: u32) -> Result<Script, UnusableScript> {
        let Self { secret, port, name, .. } = self;
        let (secret, process) = (secret.display(), std::process::id());
        // One more than a script may have is its keeper.
        let processes = processes + 1;
        Script::new(PROBE)?
            .with_input(format!("{secret}\n{process}\n{port}\n{name}\n{disk}\n{processes}"))
    }
}

/// What is open, by what the probe printed; none when it did not come to its end.
pub(super) fn missing(printed: &str) -> Option<Vec<String>> {
    let mut lines = printed.lines();
    if lines.next() != Some(TRIED) {
        return None;
    }
    let found: Vec<_> = lines.collect();
    let mut missing: Vec<String> = Vec::new();
    for (attempt, words) in OPEN {
        if found.contains(&attempt) && missing.last().is_none_or(|last| last != words) {
            missing.push(words.to_owned());
        }
    }
    Some(missing)
}
