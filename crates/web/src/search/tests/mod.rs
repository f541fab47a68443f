//! Tests of the tool with its providers.

mod brave_mcp;
mod fake_brave;
mod fallback;
mod loopback;
mod outcomes;
mod pacing;
mod requests;

use std::sync::Arc;

use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::{Tool, ToolContext, ToolFailure};
use serde_json::{Value, json};

use super::{section::SearchSection, tool::WebSearch};
use crate::api::ApiTransport;

/// Creates the tool from a section, without environment variables.
fn web_search(section: Value, transport: Arc<impl ApiTransport>) -> WebSearch {
    let transport: Arc<dyn ApiTransport> = transport;
    let section: SearchSection = serde_json::from_value(section).expect("a section");
    assert_eq!(section.validate(|_| None), [""; 0]);
    WebSearch::from_section(&section, |_| None, &transport).expect("a provider")
}

/// Calls the tool and returns the text of its result.
async fn call(tool: &WebSearch, arguments: Value) -> Result<String, ToolFailure> {
    let agent = AgentName::new("assistant").expect("a name");
    let context = ToolContext::new("web_search", SessionId::generate(), agent);
    tool.call(arguments, &context).await.map(|result| result.to_text().into_owned())
}

/// Searches for a fixed text.
pub(crate) async fn search(tool: &WebSearch) -> Result<String, ToolFailure> {
    call(tool, json!({"query": "rust"})).await
}
