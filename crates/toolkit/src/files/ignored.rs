//! What `.gitignore` files hide, read without leaving the root.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::OFlags;

use super::root::open_regular;

/// More than any project needs; a file beyond it counts up to here.
const MAX_GITIGNORE_BYTES: u64 = 64 * 1024;

/// The `.gitignore` files from the root down to the directory at hand.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    levels: Vec<Gitignore>,
}

impl Ignored {
    /// Enters a directory. `path` is relative to the root, like every path asked about later.
    pub(super) fn enter(&mut self, dir: &Dir, path: &Path) {
        self.levels.push(load(dir, path).unwrap_or_else(Gitignore::empty));
    }

    /// Leaves the directory entered last.
    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    /// Whether an entry of the directory entered last is hidden. The nearest file decides.
    pub(super) fn hides(&self, path: &Path, is_dir: bool) -> bool {
        if path.file_name().is_some_and(|name| name == ".git") {
            return true;
        }
        for level in self.levels.iter().rev() {
            match level.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// None when there is no such file, or none that can be read: then nothing is hidden.
fn load(dir: &Dir, path: &Path) -> Option<Gitignore> {
    let file = open_regular(dir, Path::new(".gitignore"), OFlags::empty()).ok()??;
    let mut bytes = Vec::new();
    file.take(MAX_GITIGNORE_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let from: PathBuf = path.join(".gitignore");
    let mut builder = GitignoreBuilder::new(path);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // Like git, a line that makes no sense hides nothing.
        let _ = builder.add_line(Some(from.clone()), line);
    }
    builder.build().ok()
}
