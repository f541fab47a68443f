//! Guides as prompts.

use rmcp::{
    ErrorData,
    model::{GetPromptResult, Prompt, PromptMessage, Role},
};
use rockbot_tools::GuideEntry;
use serde_json::json;

use crate::{client::McpClient, fleet::McpFleet};

/// The name of the context that guides are listed and read in.
const CONTEXT: &str = "prompts";

/// Returns the guides on the tools that a client may use, ordered by name.
pub(crate) fn guides(fleet: &McpFleet, client: &McpClient) -> Vec<GuideEntry> {
    fleet.guides.list(&fleet.context(client, CONTEXT))
}

/// Returns the prompts of a client.
pub(crate) fn prompts(fleet: &McpFleet, client: &McpClient) -> Vec<Prompt> {
    let prompt = |guide: GuideEntry| Prompt::new(guide.name, Some(guide.summary), None);
    guides(fleet, client).into_iter().map(prompt).collect()
}

/// Returns a guide as a message of the user.
///
/// # Errors
/// When there is no such guide for this client, or when it cannot be read.
pub(crate) async fn prompt(
    fleet: &McpFleet,
    client: &McpClient,
    name: &str,
) -> Result<GetPromptResult, ErrorData> {
    let known = guides(fleet, client).into_iter().find(|guide| guide.name == name);
    let Some(GuideEntry { summary, .. }) = known else {
        return Err(ErrorData::invalid_params("unknown prompt; prompts/list lists all", None));
    };
    let text = fleet.guides.read(name, &fleet.context(client, CONTEXT)).await;
    let text = text.map_err(|failure| {
        ErrorData::internal_error(failure.to_string(), Some(json!({"code": failure.code()})))
    })?;
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description(summary))
}
