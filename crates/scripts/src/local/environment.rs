//! What is left of this process's environment for the processes that it starts.

use std::{env, ffi::OsString};

/// What Python and what a script starts find; nothing of ours.
pub(super) const OF_SCRIPTS: [(&str, &str); 6] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("PYTHONUTF8", "1"),
    ("PYTHONIOENCODING", "utf-8"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    // Each arena takes 64 MiB of addresses, and addresses are what a limit counts.
    ("MALLOC_ARENA_MAX", "2"),
];

/// Those of our variables that have one of these names.
pub(super) fn kept(
    names: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, OsString)> {
    names.iter().filter_map(|name| Some((*name, env::var_os(name)?)))
}
