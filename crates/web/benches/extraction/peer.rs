//! Other extractors, over the same pages.

use std::{
    fs::File,
    io::{Seek, Write},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Case, Extracted};

/// An extractor in a script of `xtask/peers`, which reads pages and prints their text.
pub(crate) struct Peer {
    pub(crate) name: String,
    /// An interpreter of the script.
    program: String,
    script: String,
}

impl Peer {
    /// Reads the arguments `--peer NAME PROGRAM SCRIPT …`. Returns `None` for any others.
    pub(crate) fn from_arguments(arguments: &[&str]) -> Option<Vec<Self>> {
        let peers = arguments.chunks(4).map(|peer| match *peer {
            ["--peer", name, program, script] => Some(Self {
                name: name.to_owned(),
                program: program.to_owned(),
                script: script.to_owned(),
            }),
            _ => None,
        });
        peers.collect()
    }

    /// Extracts the main content of the pages.
    pub(crate) fn extract(&self, cases: &[Case]) -> Vec<Extracted> {
        let mut input = tempfile::tempfile().expect("a temporary file");
        for case in cases {
            let page = json!({"html": case.html, "url": case.url.as_str()});
            writeln!(input, "{page}").expect("a written page");
        }
        input.rewind().expect("a file");
        let output = self.run(input);
        let extracted = output.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let text = line["text"].as_str().unwrap_or_default().to_owned();
            let seconds = line["seconds"].as_f64().expect("a number");
            Extracted { text, time: Duration::from_secs_f64(seconds) }
        });
        let extracted: Vec<_> = extracted.collect();
        assert_eq!(extracted.len(), cases.len(), "{} did not read every page", self.name);
        extracted
    }

    fn run(&self, input: File) -> String {
        let mut command = Command::new(&self.program);
        command.arg(&self.script).arg(&self.name).stdin(input).stderr(Stdio::inherit());
        let output = command.output().expect("an interpreter");
        assert!(output.status.success(), "{} failed", self.name);
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}
