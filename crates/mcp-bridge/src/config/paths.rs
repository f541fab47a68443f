//! Paths in a servers file.

use std::path::{Path, PathBuf};

/// Returns the absolute form of a path; an empty one is the working directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
