//! Handling of calls while a hook fails.

use serde::Deserialize;

/// Handling of calls while a hook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Calls are refused: the hook fails closed.
    #[default]
    Refuse,
    /// Calls go on, and the failure is logged: the hook fails open.
    Allow,
}
