//! Paths in the arguments and results of file tools.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

use rockbot_tools::ToolFailure;

const MAX_PATH_BYTES: usize = 4096;

/// A path from a model: relative, without `.`; empty for the root itself.
///
/// It may contain `..` and symbolic links: opening it through the root rejects paths that escape.
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
            return Err(ToolFailure::invalid("the path contains a NUL character"));
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

    /// Returns the path to open: `.` for the root.
    pub(super) fn as_path(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(self.as_path()))
    }
}

/// Formats a path for a model. Control characters are escaped, so that a file name cannot forge another
/// line of a listing.
pub(super) fn escaped(path: &Path) -> String {
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
    fn path_is_relative_and_normalized() {
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
        for invalid in ["/", "/etc/passwd", "//x", "a\0b"] {
            assert_eq!(path(invalid), None, "{invalid}");
        }
        assert_eq!(path(&"x".repeat(5000)), None);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped(Path::new("a\nb:1: x")), "a\\nb:1: x");
    }
}
