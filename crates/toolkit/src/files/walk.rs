//! Walks a directory tree through open descriptors: in order, without following symbolic links.
//!
//! A walk by path could escape the root when a directory is replaced by a symbolic link. Here each
//! directory is opened relative to its parent.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, FileType};
use ignore::overrides::{Override, OverrideBuilder};
use rockbot_tools::{Executed, ToolFailure};

use super::{
    ignored::Ignored,
    path::RelativePath,
    root::{Root, access_failure, open_directory},
    stop::StopCondition,
};

const MAX_DEPTH: usize = 100;
const MAX_DIRECTORY_ENTRIES: usize = 100_000;
const MAX_GLOB_BYTES: usize = 1024;

/// One entry of the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Relative to the root.
    pub(super) path: &'a Path,
    /// The parent directory.
    pub(super) parent: &'a Dir,
    /// The name in the parent directory.
    pub(super) name: &'a OsStr,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    Symlink,
    /// A FIFO, a socket or a device.
    Special,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            _ if kind.is_dir() => Self::Directory,
            _ if kind.is_file() => Self::File,
            _ if kind.is_symlink() => Self::Symlink,
            _ => Self::Special,
        }
    }
}

/// Control flow of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    End,
}

/// A walk, and the number of its omissions.
pub(super) struct Walk<'a> {
    pub(super) stop: &'a StopCondition,
    pub(super) glob: Override,
    pub(super) recursive: bool,
    ignored: Ignored,
    /// The number of directories that could not be read completely.
    pub(super) incomplete_directories: usize,
}

impl<'a> Walk<'a> {
    /// Creates a walk. `glob` has the syntax of `.gitignore`: `*.rs` matches at any depth, `/src/**` from
    /// the root.
    pub(super) fn new(stop: &'a StopCondition, glob: Option<&str>) -> Result<Self, ToolFailure> {
        let glob = glob.map_or_else(|| Ok(Override::empty()), compile)?;
        Ok(Self {
            stop,
            glob,
            recursive: true,
            ignored: Ignored::default(),
            incomplete_directories: 0,
        })
    }

    /// Returns `true` if the glob selects a file. The path is relative to the root.
    pub(super) fn selects(&self, file: &Path) -> bool {
        self.glob.is_empty() || self.glob.matched(file, false).is_whitelist()
    }

    /// Visits the entries below a directory, sorted by name, each directory before its content.
    pub(super) fn run(
        &mut self,
        root: &Root,
        start: &RelativePath,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<Flow, ToolFailure>,
    ) -> Result<(), ToolFailure> {
        let path = root.resolve(start)?;
        let failed = |error| access_failure(start, error);
        let mut dir = root.dir().try_clone().map_err(failed)?;
        let mut above = PathBuf::new();
        for name in &path {
            self.ignored.enter(&dir, &above);
            dir = open_directory(&dir, Path::new(name)).map_err(failed)?;
            above.push(name);
        }
        self.directory(&dir, &path, 0, visit).map(|_| ())
    }

    fn directory(
        &mut self,
        dir: &Dir,
        path: &Path,
        depth: usize,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<Flow, ToolFailure>,
    ) -> Result<Flow, ToolFailure> {
        self.ignored.enter(dir, path);
        for (name, kind) in self.entries(dir)? {
            self.stop.check(Executed::Yes)?;
            let path = path.join(&name);
            let is_dir = kind == Kind::Directory;
            let matched = self.glob.matched(&path, is_dir);
            if self.ignored.hides(&path, is_dir) || matched.is_ignore() {
                continue;
            }
            let entry = Entry { path: &path, parent: dir, name: &name, kind };
            if (self.glob.is_empty() || matched.is_whitelist()) && visit(entry)? == Flow::End {
                return Ok(Flow::End);
            }
            if is_dir && self.recursive && self.enter(entry, depth, visit)? == Flow::End {
                return Ok(Flow::End);
            }
        }
        self.ignored.leave();
        Ok(Flow::Continue)
    }

    fn enter(
        &mut self,
        entry: Entry<'_>,
        depth: usize,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<Flow, ToolFailure>,
    ) -> Result<Flow, ToolFailure> {
        match open_directory(entry.parent, Path::new(entry.name)) {
            Ok(dir) if depth < MAX_DEPTH => self.directory(&dir, entry.path, depth + 1, visit),
            _ => {
                self.incomplete_directories += 1;
                Ok(Flow::Continue)
            }
        }
    }

    fn entries(&mut self, dir: &Dir) -> Result<Vec<(OsString, Kind)>, ToolFailure> {
        let mut found = Vec::new();
        let Ok(entries) = dir.entries() else {
            self.incomplete_directories += 1;
            return Ok(found);
        };
        for entry in entries {
            self.stop.check(Executed::Yes)?;
            let Ok(entry) = entry else {
                self.incomplete_directories += 1;
                break;
            };
            if found.len() == MAX_DIRECTORY_ENTRIES {
                self.incomplete_directories += 1;
                break;
            }
            let name = entry.file_name();
            if let Some(kind) = kind_of(dir, &name, entry.file_type().ok()) {
                found.push((name, kind));
            }
        }
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }
}

/// Returns the kind of an entry; `None` when it was removed.
fn kind_of(dir: &Dir, name: &OsStr, kind: Option<FileType>) -> Option<Kind> {
    match kind {
        Some(kind) if kind != FileType::unknown() => Some(kind.into()),
        // Some file systems do not store the kind in the directory.
        _ => dir.symlink_metadata(name).ok().map(|metadata| metadata.file_type().into()),
    }
}

fn compile(glob: &str) -> Result<Override, ToolFailure> {
    if glob.len() > MAX_GLOB_BYTES {
        return Err(ToolFailure::invalid(format!(
            "the glob is longer than {MAX_GLOB_BYTES} bytes"
        )));
    }
    let mut builder = OverrideBuilder::new("");
    builder
        .add(glob)
        .and_then(|builder| builder.build())
        .map_err(|error| ToolFailure::invalid(format!("the glob `{glob}` is not valid: {error}")))
}
