//! Entries hidden by `.gitignore` files, which are read within the root.

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

/// The read limit for one file; the rest of a longer file is ignored.
const MAX_GITIGNORE_BYTES: u64 = 64 * 1024;

/// The `.gitignore` files from the root down to the current directory.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    levels: Vec<Gitignore>,
}

impl Ignored {
    /// Enters a directory. `path` is relative to the root, as in [`Ignored::hides`].
    pub(super) fn enter(&mut self, dir: &Dir, path: &Path) {
        self.levels.push(load(dir, path).unwrap_or_else(Gitignore::empty));
    }

    /// Leaves the directory entered last.
    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    /// Returns whether an entry of the current directory is hidden. The nearest file takes precedence.
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

/// Loads the `.gitignore` of a directory. Returns `None` when it is missing or unreadable: nothing is
/// hidden then.
fn load(dir: &Dir, path: &Path) -> Option<Gitignore> {
    let file = open_regular(dir, Path::new(".gitignore"), OFlags::empty()).ok()??;
    let mut bytes = Vec::new();
    file.take(MAX_GITIGNORE_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let from: PathBuf = path.join(".gitignore");
    let mut builder = GitignoreBuilder::new(path);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // As in git, an invalid line hides nothing.
        let _ = builder.add_line(Some(from.clone()), line);
    }
    builder.build().ok()
}
