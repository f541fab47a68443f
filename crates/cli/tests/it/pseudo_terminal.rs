//! A pseudo terminal for commands under test.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::ffi::OsStrExt,
    process::{Child, Command},
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::Instant,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::sandbox::TIMEOUT;

/// The request for the position of the cursor, and its answer.
const POSITION: (&str, &[u8]) = ("\u{1b}[6n", b"\x1b[1;1R");

/// Runs a command on a pseudo terminal, and returns its output and exit code.
pub(crate) fn show(command: Command) -> (String, Option<i32>) {
    Terminal::start(command).finish()
}

/// A command that runs on a pseudo terminal of 100 columns.
pub(crate) struct Terminal {
    keyboard: File,
    child: Child,
    screen: Arc<Screen>,
    reader: JoinHandle<()>,
    /// End of the output that was waited for.
    seen: usize,
}

#[derive(Default)]
struct Screen {
    shown: Mutex<String>,
    changed: Condvar,
}

impl Terminal {
    pub(crate) fn start(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
        grantpt(&ours).expect("granted");
        unlockpt(&ours).expect("unlocked");
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let theirs = OpenOptions::new().read(true).write(true).open(path).expect("the other end");
        let end = || theirs.try_clone().expect("one more descriptor");
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("it starts");
        // The output must end with the command.
        drop((command, theirs));
        let keyboard = File::from(ours);
        let screen = Arc::new(Screen::default());
        let (output, shown) = (keyboard.try_clone().expect("one more descriptor"), screen.clone());
        let reader = std::thread::spawn(move || shown.read(output));
        Self { keyboard, child, screen, reader, seen: 0 }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("typed");
    }

    /// Waits until `text` is shown after the last text that was waited for.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let mut shown = self.screen.shown.lock().expect("not poisoned");
        loop {
            if let Some(found) = shown[self.seen..].find(text) {
                self.seen += found + text.len();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{text:?} was not shown: {:?}", &shown[self.seen..]);
            shown = self.screen.changed.wait_timeout(shown, left).expect("not poisoned").0;
        }
    }

    /// Returns the whole output and the exit code when the command has ended.
    pub(crate) fn finish(mut self) -> (String, Option<i32>) {
        self.reader.join().expect("read");
        let status = self.child.wait().expect("it ended");
        (self.screen.shown.lock().expect("not poisoned").clone(), status.code())
    }
}

impl Screen {
    /// Reads the output to its end, and answers requests for the position of the cursor.
    fn read(&self, mut output: File) {
        let mut keyboard = output.try_clone().expect("one more descriptor");
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match output.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => bytes.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // Linux reports an error when the other end is closed.
                Err(_) => break,
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut shown = self.shown.lock().expect("not poisoned");
            let requests = text.matches(POSITION.0).count() - shown.matches(POSITION.0).count();
            *shown = text;
            drop(shown);
            self.changed.notify_all();
            for _ in 0..requests {
                let _ = keyboard.write_all(POSITION.1);
            }
        }
    }
}
