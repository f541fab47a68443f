//! Paths that come from a model, and paths that go to it.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

use rockbot_tools::ToolFailure;

const MAX_PATH_BYTES: usize = 4096;

/// A path that a model gave: relative, without `.`; empty for the root itself.
///
/// It may still hold `..` and name symbolic links: the root refuses what leads out of it when it
/// opens the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelativePath(PathBuf);

impl RelativePath {
    pub(super) fn parse(text: &str) -> Result<Self, ToolFailure> {
        if text.len() > MAX_PATH_BYTES {
            return Err(ToolFailure::invalid(format!(
                "the path is longer than {MAX_PATH_BYTES} bytes"
            )));
        }
        if text.contains('\0') {
            return Err(ToolFailure::invalid("the path holds a NUL character"));
        }
        let mut path = PathBuf::new();
        for component in Path::new(text).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir | Component::Normal(_) => path.push(component),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(ToolFailure::invalid(
                        "the path is absolute; paths are relative to the root of the files, \
                         such as `src/main.rs` or `.`",
                    ));
                }
            }
        }
        Ok(Self(path))
    }

    /// What to open: `.` for the root.
    pub(super) fn as_path(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.as_path()))
    }
}

/// A path as a model sees it. Control characters are escaped, so that the name of a file can't
/// pretend to be another line of a listing.
pub(super) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for character in path.to_string_lossy().chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_and_plain() {
        let path = |text| RelativePath::parse(text).map(|path| path.to_string()).ok();
        for (given, expected) in [
            (".", "."),
            ("", "."),
            ("./", "."),
            ("./a//b/./c", "a/b/c"),
            ("a/../b", "a/../b"),
            ("..", ".."),
        ] {
            assert_eq!(path(given).as_deref(), Some(expected), "{given}");
        }
        for refused in ["/", "/etc/passwd", "//x", "a\0b"] {
            assert_eq!(path(refused), None, "{refused}");
        }
        assert_eq!(path(&"x".repeat(5000)), None);
    }

    #[test]
    fn a_name_cannot_pretend_to_be_another_line() {
        assert_eq!(shown(Path::new("a\nb:1: x")), "a\\nb:1: x");
    }
}
