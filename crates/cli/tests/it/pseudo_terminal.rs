//! A terminal that a test reads.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::ffi::OsStrExt,
    process::{Child, Command},
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs a command on a terminal of its own; what it showed and its exit code.
pub(crate) fn show(command: Command) -> (String, Option<i32>) {
    show_typing(command, "")
}

/// The same with this typed at the terminal.
pub(crate) fn show_typing(mut command: Command, typed: &str) -> (String, Option<i32>) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("a name");
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let theirs = OpenOptions::new().read(true).write(true).open(path).expect("the other end");
    let end = || theirs.try_clone().expect("one more descriptor");
    command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
    let child = command.spawn().expect("it starts");
    // The end of the command must be the end of what can be read.
    drop((command, theirs));
    let mut screen = File::from(ours);
    screen.write_all(typed.as_bytes()).expect("typed");
    finish(screen, child)
}

fn finish(mut screen: File, mut child: Child) -> (String, Option<i32>) {
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match screen.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => shown.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // How Linux says that nobody holds the other end.
            Err(_) => break,
        }
    }
    let status = child.wait().expect("it ended");
    (String::from_utf8_lossy(&shown).into_owned(), status.code())
}
