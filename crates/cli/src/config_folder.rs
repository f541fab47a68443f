//! The folder of the user's configuration.

use std::path::PathBuf;

use crate::failure::Failure;

/// Name of the configuration file that is found without `--config`.
pub(crate) const CONFIG_FILE: &str = "rockbot.toml";
/// The error without a folder.
pub(crate) const MISSING: &str =
    "no configuration folder, because neither XDG_CONFIG_HOME nor HOME is set";

/// Returns `rockbot` in `$XDG_CONFIG_HOME` or `~/.config`, or `None` without a home folder. `variable` reads
/// an environment variable.
pub(crate) fn locate(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    config.map(|config| config.join("rockbot"))
}

/// Returns the folder for the environment of this process.
pub(crate) fn of_process() -> Option<PathBuf> {
    locate(|name| std::env::var(name).ok())
}

/// Returns the folder for the environment of this process.
///
/// # Errors
/// When no folder is known.
pub(crate) fn require() -> Result<PathBuf, Failure> {
    of_process().ok_or_else(|| Failure::usage(MISSING))
}
