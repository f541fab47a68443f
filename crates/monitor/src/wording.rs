//! Wording of texts for people.

use rockbot_contracts::HandlerPool;

/// Formats a number with its noun.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns the command that starts a handler of a pool.
pub(crate) fn handler_command(pool: &HandlerPool) -> String {
    match pool {
        HandlerPool::Unnamed => "rockbot-tool-handler".to_owned(),
        HandlerPool::Named(pool) => format!("ROCKBOT_HANDLER__POOL={pool} rockbot-tool-handler"),
    }
}
