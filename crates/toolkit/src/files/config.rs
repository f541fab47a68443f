//! Configuration of the file tools: the root and the limits.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rockbot_tools::{Period, period::duration};
use serde::Deserialize;

/// The configuration of the family.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// The root directory of the tools. It must exist. Default: the current directory.
    #[serde(default = "default_root")]
    pub root: PathBuf,
    /// The largest text returned by one `read_file`, in bytes. Default 1,000,000.
    #[serde(default = "default_max_read_bytes")]
    pub max_read_bytes: usize,
    /// The largest file written by `write_file` and `edit_file`, in bytes. Default 4 MiB.
    #[serde(default = "default_max_write_bytes")]
    pub max_write_bytes: usize,
    /// The largest output of `bash`, `search` and `list_files`, in bytes. Default 256 KiB.
    #[serde(default = "default_max_output_bytes")]
    pub max_output_bytes: usize,
    /// The maximum number of entries returned by one `list_files`. Default 2,000.
    #[serde(default = "default_max_entries")]
    pub max_entries: usize,
    /// The default time limit for a command. Default 30 s, at most
    /// [`MAX_COMMAND_SECONDS`](Self::MAX_COMMAND_SECONDS).
    #[serde(default = "default_command_timeout", deserialize_with = "duration")]
    pub command_timeout: Duration,
    /// The shell, called with `-c`. Default `/bin/bash`, or `/bin/sh` if that is missing.
    #[serde(default = "default_shell")]
    pub shell: PathBuf,
    /// Offers the `bash` tool. It is not a sandbox: see the module. Default true.
    #[serde(default = "default_allow_bash")]
    pub allow_bash: bool,
}

impl Default for FilesConfig {
    fn default() -> Self {
        Self::new(default_root())
    }
}

fn default_root() -> PathBuf {
    PathBuf::from(".")
}

impl FilesConfig {
    /// The longest time limit for a command: ten minutes.
    pub const MAX_COMMAND_SECONDS: u64 = 600;

    /// Creates the default configuration for a root.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            max_read_bytes: default_max_read_bytes(),
            max_write_bytes: default_max_write_bytes(),
            max_output_bytes: default_max_output_bytes(),
            max_entries: default_max_entries(),
            command_timeout: default_command_timeout(),
            shell: default_shell(),
            allow_bash: default_allow_bash(),
        }
    }

    pub(super) fn check(&self) -> Result<(), FilesError> {
        const MIB: usize = 1024 * 1024;
        for (limit, value, minimum, maximum) in [
            ("max_read_bytes", self.max_read_bytes, 1, 64 * MIB),
            ("max_write_bytes", self.max_write_bytes, 1, 64 * MIB),
            ("max_output_bytes", self.max_output_bytes, 1024, 16 * MIB),
            ("max_entries", self.max_entries, 1, 100_000),
        ] {
            if !(minimum..=maximum).contains(&value) {
                return Err(FilesError::Limit { limit, value, minimum, maximum });
            }
        }
        let maximum = Duration::from_secs(Self::MAX_COMMAND_SECONDS);
        if !(Duration::from_secs(1)..=maximum).contains(&self.command_timeout) {
            let (value, maximum) = (self.command_timeout.into(), maximum.into());
            return Err(FilesError::CommandTimeout { value, maximum });
        }
        if self.allow_bash && !self.shell.is_file() {
            return Err(FilesError::Shell { path: self.shell.clone() });
        }
        Ok(())
    }
}

/// A configuration error. It is for the operator: it names paths of the host.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The root cannot be opened.
    #[error(
        "the root of the file tools, {}, cannot be opened; create it or configure another",
        .path.display()
    )]
    Root {
        /// The configured value.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The root is not a directory.
    #[error(
        "the root of the file tools, {}, is not a directory; configure a directory",
        .path.display()
    )]
    NotADirectory {
        /// The configured value.
        path: PathBuf,
    },
    /// The shell does not exist.
    #[error(
        "the shell of the bash tool, {}, does not exist; configure another or set allow_bash = false",
        .path.display()
    )]
    Shell {
        /// The configured value.
        path: PathBuf,
    },
    /// A limit is out of range.
    #[error("{limit} is {value}; set it between {minimum} and {maximum}")]
    Limit {
        /// The name of the setting.
        limit: &'static str,
        /// The configured value.
        value: usize,
        /// The smallest valid value.
        minimum: usize,
        /// The largest valid value.
        maximum: usize,
    },
    /// The time limit for commands is out of range.
    #[error("command_timeout is {value}; set it between 1s and {maximum}")]
    CommandTimeout {
        /// The configured value.
        value: Period,
        /// The largest valid value.
        maximum: Period,
    },
}

/// With the note about the next page, a result has at most 1 MiB.
const fn default_max_read_bytes() -> usize {
    1_000_000
}

const fn default_max_write_bytes() -> usize {
    4 * 1024 * 1024
}

const fn default_max_output_bytes() -> usize {
    256 * 1024
}

const fn default_max_entries() -> usize {
    2_000
}

const fn default_command_timeout() -> Duration {
    Duration::from_secs(30)
}

const fn default_allow_bash() -> bool {
    true
}

fn default_shell() -> PathBuf {
    let bash = Path::new("/bin/bash");
    if bash.is_file() { bash.to_owned() } else { PathBuf::from("/bin/sh") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_are_optional() {
        let config: FilesConfig = serde_json::from_str(r#"{"root": "work"}"#).unwrap();
        assert_eq!(config, FilesConfig::new("work"));
        assert_eq!(serde_json::from_str::<FilesConfig>("{}").unwrap(), FilesConfig::default());
        assert!(serde_json::from_str::<FilesConfig>(r#"{"root": "w", "rot": 1}"#).is_err());
    }

    #[test]
    fn limit_out_of_range_is_named() {
        let config = FilesConfig { max_entries: 0, ..FilesConfig::new("work") };
        let message = config.check().unwrap_err().to_string();
        assert_eq!(message, "max_entries is 0; set it between 1 and 100000");
        let command_timeout = Duration::from_secs(601);
        let config = FilesConfig { command_timeout, ..FilesConfig::new("work") };
        let message = config.check().unwrap_err().to_string();
        assert_eq!(message, "command_timeout is 601s; set it between 1s and 10m");
    }
}
