//! Texts about handlers that announce different tools.

use rockbot_tool_rpc::catalog::MismatchedTool;

use crate::render;

/// Maximum number of described tools.
const MAX_DESCRIBED: usize = 5;

/// Describes tools that not every handler announces alike, and the remedy.
pub(crate) fn describe(tools: &[MismatchedTool]) -> String {
    let described = tools.iter().take(MAX_DESCRIBED).map(describe_one).collect::<Vec<_>>();
    let more = match tools.len() - described.len() {
        0 => String::new(),
        more => format!("; {}", render::count(more, "more tool")),
    };
    format!(
        "handlers of one queue announce different tools: {}{more}; a call goes to any of them, so \
         run the same tools in all",
        described.join("; ")
    )
}

fn describe_one(tool: &MismatchedTool) -> String {
    let name = render::visible_line(&tool.name);
    if tool.missing_from.is_empty() {
        return format!("{name} has different definitions");
    }
    format!("{name} is missing from {}", render::visible_line(&tool.missing_from.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_names_tools_and_handlers() {
        let tool = |name: &str, missing_from: &[&str]| MismatchedTool {
            name: name.to_owned(),
            handlers: vec!["h/1".to_owned()],
            missing_from: missing_from.iter().map(ToString::to_string).collect(),
            definitions_differ: missing_from.is_empty(),
        };
        let mut tools = vec![tool("read", &[]), tool("word_count", &["h/2", "h/\u{1b}3"])];
        let text = describe(&tools);
        let expected =
            "read has different definitions; word_count is missing from h/2, h/\\u{1b}3;";
        assert!(text.contains(expected), "{text}");
        tools.extend((0..7).map(|_| tool("other", &["h/2"])));
        assert!(describe(&tools).contains("; 4 more tools;"));
    }
}
