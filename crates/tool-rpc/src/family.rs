//! Families of tools that a handler may run.

use std::fmt;

use serde::Deserialize;

/// A family of tools with one origin, as configured in `handler.families`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Files and shell.
    Files,
    /// Python scripts.
    Scripts,
    /// Search and reading of web pages.
    Web,
    /// Configured REST calls.
    Rest,
}

impl Family {
    /// Families of the unnamed pool without a setting.
    pub const DEFAULT: [Self; 2] = [Self::Files, Self::Scripts];

    /// Returns the name in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Scripts => "scripts",
            Self::Web => "web",
            Self::Rest => "rest",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
