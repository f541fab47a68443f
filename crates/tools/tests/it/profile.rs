//! Enforcement of profiles and filters for all spellings of a tool's name.

use std::sync::Arc;

use rockbot_contracts::ToolErrorCode;
use rockbot_contracts::{AgentName, SessionId};
use rockbot_testkit::tool_name_variants;
use rockbot_tools::{
    Executed, ToolCall, ToolContext, ToolExecutor, ToolFilter, ToolProfile, ToolRegistry,
    ToolScope, ToolSource,
};

use crate::counting_tool::CountingTool;

/// Checks that a tool is rejected under every spelling of its name and of its aliases within a scope
/// that excludes it.
async fn check(name: &str, source: ToolSource, scope: ToolScope) {
    let tool = CountingTool::with_source(name, source);
    let registry = Arc::new(ToolRegistry::new());
    registry.register(Arc::new(tool.clone())).unwrap();
    let aliases = ["functions.", "tools/", "\u{200b}"].map(|prefix| format!("{prefix}{name}"));
    aliases.iter().for_each(|alias| registry.alias(alias, name));
    let executor = ToolExecutor::new(registry);
    let scope = Arc::new(scope);
    let mut found = 0;
    for spelling in tool_name_variants::variants(name) {
        let session = SessionId::new("s").unwrap();
        let agent = AgentName::new("tester").unwrap();
        let context =
            ToolContext { scope: scope.clone(), ..ToolContext::new(&spelling, session, agent) };
        let failure = executor.execute(ToolCall { context, arguments: "{}".into() }).await;
        let failure = failure.expect_err(&spelling);
        assert_eq!(failure.executed(), Executed::No, "{spelling}");
        let reason = match failure.code() {
            ToolErrorCode::NotPermitted => {
                found += 1;
                "may not use that tool"
            }
            ToolErrorCode::ToolNotFound => "tool not found",
            other => panic!("{spelling}: {other}"),
        };
        assert!(failure.model_text().contains(reason), "{}", failure.model_text());
    }
    assert_eq!(tool.calls(), 0);
    // At least the name itself and the aliases among the spellings resolve to the tool.
    assert!(found > 2, "{name}: only {found} spellings resolved to the tool");
}

#[tokio::test]
async fn tool_outside_profile_is_rejected_under_any_name() {
    let filter = ToolFilter::default;
    let subagent = || ToolScope::new(ToolProfile::subagent(), filter());
    check("mcp_register_server", ToolSource::McpManagement, subagent()).await;
    check("cancel_scheduled_task", ToolSource::Scheduling, subagent()).await;
    check("spawn_subagent", ToolSource::Subagent, subagent()).await;
    let synthesis = ToolScope::new(ToolProfile::a2a_synthesis(), filter());
    check("invoke_agent", ToolSource::A2a, synthesis).await;
}

#[tokio::test]
async fn denied_tool_is_rejected_under_any_name() {
    let deny = ToolFilter { deny: vec!["bash".to_owned()], ..ToolFilter::default() };
    check("bash", ToolSource::Files, ToolScope::new(ToolProfile::main(), deny)).await;
    let allow = ToolFilter { allow: vec!["read_*".to_owned()], deny: Vec::new() };
    check("write_file", ToolSource::Files, ToolScope::new(ToolProfile::main(), allow)).await;
}
