//! Clocks of processes, which tests set wrong.
//!
//! libfaketime is loaded into the processes. It adds an offset, which it reads from a file every second,
//! to the time of day. The monotonic clock, and so every timeout, stays correct.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use tempfile::TempDir;
use tokio::process::Command;

/// Variable with the path of libfaketime.
const LIBRARY: &str = "ROCKBOT_TEST_FAKETIME";
/// Offset of the check before a run, in seconds.
const CHECKED_OFFSET: i64 = 200;
/// Error of the check before a run, in seconds.
const CHECK_TOLERANCE: i64 = 30;
/// Folder in which libfaketime has an object for each process.
const SHARED_MEMORY: &str = "/dev/shm";
/// Prefixes of these objects, before the id of the process.
const OBJECTS: [&str; 2] = ["faketime_shm_", "sem.faketime_sem_"];

/// The clocks of the processes of a test.
pub(crate) struct Clocks {
    library: PathBuf,
    offsets: TempDir,
}

impl Clocks {
    /// Checks that clocks can be changed. A run whose clock faults had no effect would prove nothing.
    pub(crate) async fn start() -> Self {
        let library =
            std::env::var_os(LIBRARY).expect("set by `cargo xtask test` and `cargo xtask chaos`");
        let clocks = Self { library: library.into(), offsets: TempDir::new().expect("a folder") };
        clocks.set("check", CHECKED_OFFSET);
        let mut command = Command::new("date");
        clocks.apply("check", command.arg("+%s"));
        let output = command.output().await.expect("started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let shown: i64 = text.trim().parse().expect("seconds since 1970");
        let offset = shown - unix_seconds();
        assert!(
            (offset - CHECKED_OFFSET).abs() < CHECK_TOLERANCE,
            "libfaketime changes a clock by {offset} s instead of {CHECKED_OFFSET} s; check {}",
            clocks.library.display()
        );
        clocks
    }

    /// Gives the process of a name its clock.
    pub(crate) fn apply(&self, name: &str, command: &mut Command) {
        command.envs(self.settings(name));
    }

    /// Returns the environment variables that give the process of a name its clock.
    pub(crate) fn settings(&self, name: &str) -> [(&'static str, OsString); 5] {
        remove_objects_of_dead_processes();
        let offset = self.file(name);
        if !offset.exists() {
            self.set(name, 0);
        }
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", offset.into()),
            ("FAKETIME_CACHE_DURATION", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    /// Sets a clock this many seconds ahead, or behind. A running process has it within a second.
    pub(crate) fn set(&self, name: &str, offset: i64) {
        // Replaced, because a process could read half of it.
        let (file, new) = (self.file(name), self.offsets.path().join(format!("{name}.new")));
        fs::write(&new, format!("{offset:+}\n")).expect("written");
        fs::rename(new, file).expect("renamed");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.offsets.path().join(name)
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        remove_objects_of_dead_processes();
    }
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("in range")
}

/// Removes what libfaketime leaves of a killed process. A process that got its id would not start.
fn remove_objects_of_dead_processes() {
    for object in fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
        let name = object.file_name().to_string_lossy().into_owned();
        let pid = OBJECTS.iter().find_map(|prefix| name.strip_prefix(prefix));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another run may have removed it.
            let _ = fs::remove_file(object.path());
        }
    }
}
