//! The OpenAPI description of the API.

use utoipa::OpenApi;

use super::{agents, calls, conversations, fleet, letters, schedules, stream, tasks, tool_calls};

/// The description. Sessions and the page of the console are not part of it.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "RockBot gateway",
        description = "Conversations with agents, and what operators see of a fleet. Requests need a \
                       session cookie or a bearer token."
    ),
    paths(
        agents::list,
        schedules::list,
        tasks::list,
        conversations::list,
        conversations::create,
        conversations::read,
        conversations::rename,
        conversations::remove,
        conversations::events,
        conversations::send,
        conversations::cancel,
        conversations::decide,
        conversations::answer_input,
        conversations::share,
        conversations::unshare,
        conversations::export,
        conversations::read_shared,
        calls::list,
        calls::read,
        calls::content,
        fleet::read,
        fleet::list_tools,
        fleet::read_tool,
        tool_calls::call,
        letters::list_queues,
        letters::list,
        letters::read,
        letters::replay,
        letters::purge,
        stream::open,
    ),
    components(schemas(conversations::ConversationEvent))
)]
struct Description;

/// Returns the OpenAPI description of the REST API as JSON.
///
/// # Errors
/// None in practice: the description has only text keys.
pub fn description() -> Result<String, serde_json::Error> {
    Description::openapi().to_pretty_json()
}
