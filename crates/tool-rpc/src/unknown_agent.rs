//! The name of callers that the broker does not name.

use std::sync::LazyLock;

use rockbot_contracts::AgentName;

/// Returns the name of a caller whose name is not known.
pub(crate) fn unknown_agent() -> &'static AgentName {
    static UNKNOWN: LazyLock<AgentName> = LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "a constant that is a valid name")]
        AgentName::new("unknown").expect("a valid name")
    });
    &UNKNOWN
}
