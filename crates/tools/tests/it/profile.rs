//! What a profile keeps out is not run, whatever a model calls it.

use std::sync::Arc;

use rockbot_contracts::ToolErrorCode;
use rockbot_contracts::{AgentName, SessionId};
use rockbot_testkit::tool_names;
use rockbot_tools::{
    Executed, ToolCall, ToolContext, ToolExecutor, ToolFilter, ToolProfile, ToolRegistry,
    ToolScope, ToolSource,
};

use crate::small::Counter;

/// A tool of this name and source, found by these aliases too, called in a thousand ways within a
/// scope that keeps it out.
async fn check(name: &str, source: ToolSource, scope: ToolScope) {
    let tool = Counter::of(name, source);
    let registry = Arc::new(ToolRegistry::new());
    registry.register(Arc::new(tool.clone())).unwrap();
    let aliases = ["functions.", "tools/", "\u{200b}"].map(|prefix| format!("{prefix}{name}"));
    aliases.iter().for_each(|alias| registry.alias(alias, name));
    let executor = ToolExecutor::new(registry);
    let scope = Arc::new(scope);
    let mut found = 0;
    for written in tool_names::variants(name) {
        let session = SessionId::new("s").unwrap();
        let agent = AgentName::new("tester").unwrap();
        let context =
            ToolContext { scope: scope.clone(), ..ToolContext::new(&written, session, agent) };
        let failure = executor.execute(ToolCall { context, arguments: "{}".into() }).await;
        let failure = failure.expect_err(&written);
        assert_eq!(failure.executed(), Executed::No, "{written}");
        let reason = match failure.code() {
            ToolErrorCode::NotPermitted => {
                found += 1;
                "may not use that tool"
            }
            ToolErrorCode::ToolNotFound => "tool not found",
            other => panic!("{written}: {other}"),
        };
        assert!(failure.model_text().contains(reason), "{}", failure.model_text());
    }
    assert_eq!(tool.calls(), 0);
    // The name itself, and the aliases that are among the inventions, lead to the tool at least.
    assert!(found > 2, "{name}: only {found} names found the tool at all");
}

#[tokio::test]
async fn a_tool_outside_of_the_profile_is_refused_under_a_thousand_names() {
    let filter = ToolFilter::default;
    let subagent = || ToolScope::new(ToolProfile::subagent(), filter());
    check("mcp_register_server", ToolSource::McpManagement, subagent()).await;
    check("cancel_scheduled_task", ToolSource::Scheduling, subagent()).await;
    check("spawn_subagent", ToolSource::Subagent, subagent()).await;
    let synthesis = ToolScope::new(ToolProfile::a2a_synthesis(), filter());
    check("invoke_agent", ToolSource::A2a, synthesis).await;
}

#[tokio::test]
async fn a_tool_that_the_agent_may_not_use_is_refused_under_a_thousand_names() {
    let deny = ToolFilter { deny: vec!["bash".to_owned()], ..ToolFilter::default() };
    check("bash", ToolSource::Files, ToolScope::new(ToolProfile::main(), deny)).await;
    let allow = ToolFilter { allow: vec!["read_*".to_owned()], deny: Vec::new() };
    check("write_file", ToolSource::Files, ToolScope::new(ToolProfile::main(), allow)).await;
}
