//! Names of the agent's own tools that steer a turn.

use rockbot_tools::scope::ASK_PERSON;

/// Ends the turn with its content as the answer.
pub(crate) const FINAL_REPORT: &str = "agent__final_report";
/// Shows the user how far the task is.
pub(crate) const TASK_STATUS: &str = "agent__task_status";
/// Makes several tool calls in one.
pub(crate) const BATCH: &str = "agent__batch";

/// Hands the message of the user off to another agent.
pub(crate) const HANDOFF: &str = "router__handoff-to";

/// Runs small plans of tool calls.
pub(crate) const SPAWN_WISPS: &str = "spawn_wisps";

/// Calls a tool of an MCP server by its name.
pub(crate) const MCP_INVOKE_TOOL: &str = "mcp_invoke_tool";

/// Start of the names of agents that are tools, and of some internal tools.
pub(crate) const AGENT_TOOL_PREFIX: &str = "agent__";
/// Start of the names of sub-agents that a definition describes as tools.
pub(crate) const SUBAGENT_TOOL_PREFIX: &str = "subagent__";

/// Starts a sub-agent.
pub(crate) const SPAWN_SUBAGENT: &str = "spawn_subagent";
/// Hands a task to another agent of the bus.
pub(crate) const INVOKE_AGENT: &str = "invoke_agent";

/// Returns `true` for a tool that delegates work, whose result may arrive after the turn.
pub(crate) fn hands_over(name: &str) -> bool {
    [SPAWN_SUBAGENT, INVOKE_AGENT].contains(&name)
}

/// Returns `true` for a tool that starts a turn, of this agent or of another one.
pub(crate) fn starts_work(name: &str) -> bool {
    let prefixes = [AGENT_TOOL_PREFIX, SUBAGENT_TOOL_PREFIX];
    let is_agent = !is_internal(name) && prefixes.iter().any(|prefix| name.starts_with(prefix));
    is_agent || hands_over(name)
}

/// Returns `true` for a tool that other tools cannot call: it steers a turn, or starts a sub-agent.
pub(crate) fn is_called_alone(name: &str) -> bool {
    is_internal(name) || name == SPAWN_SUBAGENT
}

/// Returns `true` for the name of an internal tool. Other tools of this prefix are agents.
pub(crate) fn is_internal(name: &str) -> bool {
    [FINAL_REPORT, TASK_STATUS, BATCH, HANDOFF, SPAWN_WISPS, ASK_PERSON].contains(&name)
}
