//! Prompts of MCP servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    message::Message,
    tool::{ContentBlock, null_is_default},
};

/// A prompt: a text that its server writes from arguments. Untrusted text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpPrompt {
    /// Name on the server.
    pub name: String,
    /// Purpose, on one line.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Arguments.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<McpPromptArgument>,
}

impl McpPrompt {
    /// Maximum number of prompts of a server that are announced.
    pub const MAX_LISTED: usize = 50;
    /// Maximum number of arguments of a prompt.
    pub const MAX_ARGUMENTS: usize = 16;

    /// Returns `true` if the prompt can be requested without arguments.
    #[must_use]
    pub fn needs_no_arguments(&self) -> bool {
        self.arguments.iter().all(|argument| !argument.required)
    }
}

/// An argument of a prompt. Its value is a string.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpPromptArgument {
    /// Name.
    pub name: String,
    /// Meaning, on one line.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,
    /// Set when the prompt cannot be requested without it.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub required: bool,
}

/// Request for the messages of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpGetPromptRequest {
    /// The server.
    pub server_name: String,
    /// Name of the prompt.
    pub prompt_name: String,
    /// Values of its arguments.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub arguments: BTreeMap<String, String>,
}

impl Message for McpGetPromptRequest {
    const TYPE: &'static str = "McpGetPromptRequest";
}

/// Messages of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpPromptMessages {
    /// The server.
    pub server_name: String,
    /// Messages in their order. Untrusted.
    #[serde(default, deserialize_with = "null_is_default")]
    pub messages: Vec<McpPromptMessage>,
}

impl Message for McpPromptMessages {
    const TYPE: &'static str = "McpPromptMessages";
}

impl McpPromptMessages {
    /// Returns the text of all messages, separated by empty lines. Messages of the assistant are marked;
    /// content that is not text is named.
    #[must_use]
    pub fn to_text(&self) -> String {
        let messages = self.messages.iter().map(|McpPromptMessage { role, content }| {
            let text = match content {
                ContentBlock::Text { text } | ContentBlock::Resource { text: Some(text), .. } => {
                    text.clone()
                }
                ContentBlock::Resource { uri, .. } => format!("[resource {uri}]"),
                ContentBlock::Image { mime_type, .. } | ContentBlock::Audio { mime_type, .. } => {
                    format!("[{mime_type}]")
                }
            };
            match role {
                McpPromptRole::User => text,
                McpPromptRole::Assistant => format!("Assistant: {text}"),
            }
        });
        messages.collect::<Vec<_>>().join("\n\n")
    }
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpPromptMessage {
    /// Role for which the server wrote it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub role: McpPromptRole,
    /// Its content.
    pub content: ContentBlock,
}

/// Roles of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpPromptRole {
    /// The model.
    Assistant,
    /// The user, and roles that this build does not know.
    #[default]
    #[serde(other)]
    User,
}
