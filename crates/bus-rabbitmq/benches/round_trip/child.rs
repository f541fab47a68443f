//! Child processes: this program in another role.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

pub struct Child(std::process::Child);

impl Child {
    /// Starts a child and waits until it is ready.
    pub fn start(role: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let output = child.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready", "{role:?} did not start");
        Self(child)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reports that this child is ready, and waits until its parent exits.
pub async fn ready_until_orphaned() {
    use tokio::io::AsyncReadExt;
    println!("ready");
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}
