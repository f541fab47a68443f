//! Texts about handlers of one pool that announce different tools, and pools that announce the same.

use std::collections::BTreeSet;

use rockbot_contracts::{HandlerPool, outside_text::escaped_line};
use rockbot_tool_rpc::catalog::{MismatchedTool, PoolConflict};

use crate::wording::{count, handler_command};

/// Maximum number of described tools.
const MAX_DESCRIBED: usize = 5;

/// Describes tools that not every handler announces alike, and the remedy.
pub fn describe_mismatched(tools: &[MismatchedTool]) -> String {
    let described = tools.iter().take(MAX_DESCRIBED).map(describe_one).collect::<Vec<_>>();
    let more = more_tools(tools.len() - described.len());
    let commands = commands(tools.iter().map(|tool| &tool.pool), "");
    format!(
        "handlers of one pool announce different tools: {}{more}; a call goes to any of them, so \
         run the same tools in all; restart those that differ with the version and configuration of the \
         others: {commands}",
        described.join("; ")
    )
}

fn describe_one(tool: &MismatchedTool) -> String {
    let name = escaped_line(&tool.name);
    if tool.missing_from.is_empty() {
        return format!("{name} has different definitions");
    }
    format!("{name} is missing from {}", escaped_line(&tool.missing_from.join(", ")))
}

fn more_tools(number: usize) -> String {
    if number == 0 { String::new() } else { format!("; {}", count(number, "more tool")) }
}

/// Describes tools that several pools announce, and the remedy.
pub fn describe_conflicts(conflicts: &[PoolConflict]) -> String {
    let one = |conflict: &PoolConflict| {
        let refused: Vec<_> = conflict.refused.iter().map(ToString::to_string).collect();
        escaped_line(&format!(
            "{} of {} is offered, that of {} is refused",
            conflict.name,
            conflict.offered,
            refused.join(", ")
        ))
    };
    let described: Vec<_> = conflicts.iter().take(MAX_DESCRIBED).map(one).collect();
    let more = more_tools(conflicts.len() - described.len());
    let refused = conflicts.iter().filter_map(|conflict| conflict.refused.first());
    let families = "ROCKBOT_HANDLER__FAMILIES='[\"…\"]' ";
    let commands = commands(refused.map(|origin| &origin.pool), families);
    format!(
        "several pools announce the same tool: {}{more}; rename one of them, or run it in one pool and the \
         other with other families: {commands}",
        described.join("; ")
    )
}

/// Returns the command of a handler of each pool, after variables, at most five.
fn commands<'a>(pools: impl Iterator<Item = &'a HandlerPool>, variables: &str) -> String {
    let pools: BTreeSet<_> = pools.map(handler_command).take(MAX_DESCRIBED).collect();
    let quoted: Vec<_> = pools.iter().map(|command| format!("`{variables}{command}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{PoolName, ToolSource};
    use rockbot_tool_rpc::catalog::ToolOrigin;

    use super::*;

    #[test]
    fn description_names_tools_and_handlers() {
        let tool = |name: &str, missing_from: &[&str]| MismatchedTool {
            pool: HandlerPool::Unnamed,
            name: name.to_owned(),
            handlers: vec!["h/1".to_owned()],
            missing_from: missing_from.iter().map(ToString::to_string).collect(),
            definitions_differ: missing_from.is_empty(),
        };
        let mut tools = vec![tool("read", &[]), tool("word_count", &["h/2", "h/\u{1b}3"])];
        let text = describe_mismatched(&tools);
        let expected =
            "read has different definitions; word_count is missing from h/2, h/\\u{1b}3;";
        assert!(text.contains(expected), "{text}");
        tools.extend((0..7).map(|_| tool("other", &["h/2"])));
        let text = describe_mismatched(&tools);
        assert!(
            text.contains("; 4 more tools;") && text.ends_with(": `rockbot-tool-handler`"),
            "{text}"
        );
    }

    #[test]
    fn conflict_names_both_origins() {
        let origin = |source: &str, pool: Option<&str>| ToolOrigin {
            source: ToolSource::Other(source.to_owned()),
            pool: pool.map(|name| PoolName::new(name).unwrap()).into(),
        };
        let conflict = PoolConflict {
            name: "read".to_owned(),
            offered: origin("files", None),
            refused: vec![origin("own\u{1b}", Some("web"))],
        };
        let text = describe_conflicts(std::slice::from_ref(&conflict));
        let expected = "read of files in the unnamed pool is offered, that of own\\u{1b} in pool web \
                        is refused";
        let command = "' ROCKBOT_HANDLER__POOL=web rockbot-tool-handler`";
        assert!(text.contains(expected) && text.ends_with(command), "{text}");
        assert!(describe_conflicts(&vec![conflict; 7]).contains("; 2 more tools;"));
    }
}
