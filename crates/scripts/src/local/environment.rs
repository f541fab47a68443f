//! Environment variables of child processes, and programs in `PATH`.

use std::{env, ffi::OsString, path::PathBuf};

/// The environment of Python and of scripts; nothing of this process's own.
pub(super) const SCRIPT_VARIABLES: [(&str, &str); 6] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("PYTHONUTF8", "1"),
    ("PYTHONIOENCODING", "utf-8"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    // Each arena reserves 64 MiB of address space, which counts towards the memory limit.
    ("MALLOC_ARENA_MAX", "2"),
];

/// Returns those variables of this process that have one of these names.
pub(super) fn inherited(
    names: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, OsString)> {
    names.iter().filter_map(|name| Some((*name, env::var_os(name)?)))
}

/// Returns the absolute path of a program that is in `PATH`.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_absolute() && path.is_file())
}
