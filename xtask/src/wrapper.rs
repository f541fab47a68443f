//! Wrapper scripts, which start a program with fixed arguments.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a shell script that executes `command` with the arguments of the script.
pub(crate) fn write(program: &Path, command: &[&Path]) -> Result<()> {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
    // Replaced atomically, because a concurrent run may start the same program.
    let new = program.with_extension("new");
    fs::write(&new, script)
        .and_then(|()| fs::set_permissions(&new, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, program))
        .with_context(|| format!("cannot write {}", program.display()))
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn path_is_quoted_as_one_word() {
        assert_eq!(quoted("/a b/node"), "'/a b/node'");
        assert_eq!(quoted("/it's"), r"'/it'\''s'");
    }
}
