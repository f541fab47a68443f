//! A pseudo terminal for commands under test.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::ffi::OsStrExt,
    process::{Child, Command},
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs a command on a pseudo terminal, and returns its output and exit code.
pub(crate) fn show(command: Command) -> (String, Option<i32>) {
    show_typing(command, "")
}

/// Runs a command on a pseudo terminal with typed input.
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
    // The output must end with the command.
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
            // Linux reports an error when the other end is closed.
            Err(_) => break,
        }
    }
    let status = child.wait().expect("it ended");
    (String::from_utf8_lossy(&shown).into_owned(), status.code())
}
