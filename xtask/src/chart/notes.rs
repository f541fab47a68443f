//! The notes that Helm prints after an installation.
//!
//! `helm template` leaves them out. The check renders them in a ConfigMap of a copy of the chart. The comments
//! `# note: TEXT` and `# no note: TEXT` of a file of values name texts that they must and must not contain.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{chart, files, stdout, template_of};
use crate::{console, process, workspace};

const CONFIG_MAP: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: notes
data:
  notes: {{ include "rockbot/templates/NOTES.txt" . | toJson }}
"#;

/// Renders the notes with the values in `helm/tests/notes`, and compares them with their comments.
pub(super) fn check(helm: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let copy = folder.path().join("rockbot");
    let log = folder.path().join("copy.log");
    process::run_quietly(Command::new("cp").arg("-rL").arg(chart()).arg(&copy), &log)?;
    fs::write(copy.join("templates/notes.yaml"), CONFIG_MAP)?;
    let cases = files(&workspace::root().join("helm/tests/notes"), "yaml")?;
    ensure!(!cases.is_empty(), "no values in helm/tests/notes");
    for values in &cases {
        let path = values.display();
        let mut command = template_of(helm, &copy, values);
        let rendered = stdout(command.args(["--show-only", "templates/notes.yaml"]))?;
        // The text is a JSON string.
        let rendered = rendered.replace("\\n", " ");
        let text = fs::read_to_string(values)?;
        let comments = |prefix| text.lines().filter_map(move |line| line.strip_prefix(prefix));
        ensure!(comments("# note: ").next().is_some(), "{path} has no comment `# note: TEXT`");
        for expected in comments("# note: ") {
            ensure!(rendered.contains(expected), "{path}: no note {expected:?} in:\n{rendered}");
        }
        for unexpected in comments("# no note: ") {
            ensure!(
                !rendered.contains(unexpected),
                "{path}: a note {unexpected:?} in:\n{rendered}"
            );
        }
    }
    console::progress("chart", format_args!("{} values have the expected notes", cases.len()));
    Ok(())
}
