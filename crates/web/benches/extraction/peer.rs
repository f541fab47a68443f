//! Extractors written in Python, over the same pages.

use std::{
    fs::File,
    io::{Seek, Write},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Case, Extracted};

/// The extractors of `xtask/peers/extractors.py`.
pub(crate) const NAMES: [&str; 2] = ["trafilatura", "mcp-server-fetch"];

/// Extracts the main content of the pages. `program` is a Python interpreter, and `script` the path of
/// `extractors.py`.
pub(crate) fn extract(program: &str, script: &str, name: &str, cases: &[Case]) -> Vec<Extracted> {
    let mut input = tempfile::tempfile().expect("a temporary file");
    for case in cases {
        let page = json!({"html": case.html, "url": case.url});
        writeln!(input, "{page}").expect("a written page");
    }
    input.rewind().expect("a file");
    let output = run(program, &[script, name], input);
    let extracted = output.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = line["text"].as_str().unwrap_or_default().to_owned();
        let seconds = line["seconds"].as_f64().expect("a number");
        Extracted { text, time: Duration::from_secs_f64(seconds) }
    });
    let extracted: Vec<_> = extracted.collect();
    assert_eq!(extracted.len(), cases.len(), "{name} did not read every page");
    extracted
}

fn run(program: &str, arguments: &[&str], input: File) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(input).stderr(Stdio::inherit()).output();
    let output = output.expect("a Python interpreter");
    assert!(output.status.success(), "{arguments:?} failed");
    String::from_utf8(output.stdout).expect("UTF-8")
}
