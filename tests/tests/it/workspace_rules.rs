//! Workspace rules. A failure names the file and what to do.

mod documents;
mod layers;
mod module_cycles;
mod prose;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without sources of the repository.
const IGNORED: [&str; 4] = [".git", ".local", "node_modules", "target"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is below the root")
}

/// Returns relative path and text of every file with an extension, sorted by path.
fn files(extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !IGNORED.contains(&name.as_str()) {
                folders.push(path);
            } else if path.is_file() && path.extension().is_some_and(|end| end == extension) {
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                let relative = path.strip_prefix(root()).expect("found below the root");
                found.push((relative.to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} file found below {}", root().display());
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    entries.map(|entry| entry.expect("a readable entry").path()).collect()
}

/// Fails with all violations.
#[track_caller]
fn assert_no_violations(violations: &[String]) {
    let count = violations.len();
    assert!(violations.is_empty(), "{count} violations:\n  {}\n", violations.join("\n  "));
}
