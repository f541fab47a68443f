//! The program that installs package sets, in a folder instead of a volume.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

const INSTALL: &str = include_str!("../../src/install.py");
/// Serves the files of its working folder, an index with a wheel of the package `demo`. Its arguments are the
/// address and the port; it prints the port.
pub(crate) const INDEX: &str = "
import http.server, os, sys, zipfile
NAME = 'demo-1.0-py3-none-any.whl'
os.makedirs('simple/demo')
with open('simple/demo/index.html', 'w') as page:
    page.write('<a href=\"../../%s\">%s</a>' % (NAME, NAME))
with zipfile.ZipFile(NAME, 'w') as wheel:
    wheel.writestr('demo.py', 'VALUE = 42\\n')
    info = 'demo-1.0.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
address = (sys.argv[1], int(sys.argv[2]))
server = http.server.ThreadingHTTPServer(address, http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder for sets, and an index. The index is stopped when this is dropped.
struct Fixture {
    folder: tempfile::TempDir,
    index: Child,
    url: String,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["packages", "index"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let mut command = Command::new("python3");
        command.args(["-c", INDEX, "127.0.0.1", "0"]).current_dir(folder.path().join("index"));
        let mut index = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(index.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let url = format!("http://127.0.0.1:{}/simple", port.trim());
        Self { folder, index, url }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a set that was last used some time ago.
    fn set(&self, name: &str, age: Duration) -> PathBuf {
        let path = self.path("packages").join(name);
        fs::create_dir(&path).unwrap();
        File::open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        path
    }

    /// Installs a set and keeps `keep`. Returns the exit code and the termination message.
    fn install(&self, set: &str, requirements: &str, keep: u32) -> (i32, String) {
        self.run(INSTALL, set, requirements, keep)
    }

    /// Runs a variant of the program, like [`install`](Self::install).
    fn run(&self, program: &str, set: &str, requirements: &str, keep: u32) -> (i32, String) {
        fs::write(self.path("list"), requirements).unwrap();
        let message = self.path("message");
        fs::write(&message, "").unwrap();
        let quoted = |path: &Path| format!("{:?}", path.to_str().unwrap());
        let program = program
            .replacen("\"/packages\"", &quoted(&self.path("packages")), 1)
            .replacen("\"/rockbot/requirements.txt\"", &quoted(&self.path("list")), 1)
            .replacen("\"/dev/termination-log\"", &quoted(&message), 1)
            // The disk of this machine may have less free space than a volume should.
            .replacen("MIN_FREE, MAX_ATTEMPTS = 0.1", "MIN_FREE, MAX_ATTEMPTS = 0.0", 1);
        let mut command = Command::new("python3");
        command.args(["-I", "-S", "-B", "-c", &program, set, &keep.to_string(), &self.url, "60"]);
        let path = std::env::var_os("PATH").unwrap();
        let status = command.env_clear().env("PATH", path).env("HOME", self.folder.path()).status();
        (status.unwrap().code().unwrap(), fs::read_to_string(&message).unwrap())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.index.kill();
        let _ = self.index.wait();
    }
}

#[test]
fn set_is_installed_once_and_readable() {
    let fixture = Fixture::new();
    assert_eq!(fixture.install("0a", "demo\n", 9), (0, String::new()));
    let module = fixture.path("packages/0a/demo.py");
    assert_eq!(fs::read_to_string(&module).unwrap(), "VALUE = 42\n");
    assert_eq!(fs::metadata(&module).unwrap().permissions().mode() & 0o777, 0o644);
    let mode = fs::metadata(module.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    // Without the index: a complete set needs none.
    fs::remove_dir_all(fixture.path("index/simple")).unwrap();
    assert_eq!(fixture.install("0a", "demo\n", 9), (0, String::new()));
    assert_eq!(fs::read_dir(fixture.path("packages")).unwrap().count(), 1);
}

#[test]
fn failed_installation_leaves_no_set_and_reports_cause() {
    let fixture = Fixture::new();
    let (code, message) = fixture.install("0a", "missing==1.0\n", 9);
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("missing==1.0") && message.len() <= 2000, "{message}");
    assert_eq!(fs::read_dir(fixture.path("packages")).unwrap().count(), 0);
    fs::remove_dir_all(fixture.path("packages")).unwrap();
    let (code, message) = fixture.install("0a", "demo\n", 9);
    assert_eq!(code, 4, "{message}");
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn oldest_sets_beyond_limit_are_removed_after_a_day() {
    let fixture = Fixture::new();
    let (oldest, old) = (fixture.set("0b", 4 * DAY), fixture.set("0c", 3 * DAY));
    let (recent, foreign) = (fixture.set("0d", DAY / 2), fixture.set("lost+found", 9 * DAY));
    let abandoned = fixture.set("unfinished-x", DAY);
    let running = fixture.set("unfinished-y", Duration::from_secs(60));
    assert_eq!(fixture.install("0a", "demo\n", 3).0, 0);
    assert!(!oldest.exists() && !abandoned.exists());
    for kept in [&fixture.path("packages/0a"), &old, &recent, &foreign, &running] {
        assert!(kept.exists(), "{kept:?}");
    }
    // A set that is requested again is no longer old.
    assert_eq!(fixture.install("0c", "demo\n", 1).0, 0);
    assert!(old.exists() && recent.exists() && fixture.path("packages/0a").exists());
}

#[test]
fn full_volume_is_reported_and_loses_old_sets() {
    let fixture = Fixture::new();
    let (old, recent) = (fixture.set("0b", 2 * DAY), fixture.set("0c", DAY / 2));
    // A volume that is full, and an installer that finds no space.
    let full = INSTALL.replacen("MIN_FREE, MAX_ATTEMPTS = 0.1", "MIN_FREE, MAX_ATTEMPTS = 2.0", 1);
    let pip = "import sys; sys.exit('ERROR: [Errno 28] No space left on device')";
    let command = "[sys.executable, \"-I\", \"-m\", \"pip\"";
    let full = full.replacen(command, &format!("[sys.executable, \"-c\", {pip:?}"), 1);
    let (code, message) = fixture.run(&full, "0a", "demo\n", 9);
    assert_eq!(code, 4, "{message}");
    assert!(message.contains("No space left"), "{message}");
    assert!(!old.exists() && recent.exists());
}

#[test]
fn set_that_was_removed_meanwhile_is_installed_again() {
    let fixture = Fixture::new();
    fixture.set("0a", 2 * DAY);
    // Another installation removes the set before it is marked as used.
    let call = "            os.utime(target)\n";
    let removed = format!("            attempt == 0 and os.rmdir(target)\n{call}");
    let program = INSTALL.replacen(call, &removed, 1);
    assert_ne!(program, INSTALL);
    assert_eq!(fixture.run(&program, "0a", "demo\n", 9), (0, String::new()));
    assert!(fixture.path("packages/0a/demo.py").exists());
}

#[test]
fn set_that_was_used_meanwhile_is_not_removed() {
    let fixture = Fixture::new();
    let used = fixture.set("0b", 2 * DAY);
    // It is used between the check of its age and its removal.
    let call = "    os.rename(path, gone)\n";
    let program = INSTALL.replacen(call, &format!("    os.utime(path)\n{call}"), 1);
    assert_ne!(program, INSTALL);
    assert_eq!(fixture.run(&program, "0a", "demo\n", 1), (0, String::new()));
    assert!(used.exists() && fixture.path("packages/0a").exists());
}
