//! Resources of MCP servers: lists, contents and changes.

use serde::{Deserialize, Serialize};

use crate::{
    message::Message,
    tool::{ContentBlock, null_is_default},
};

/// Request for a page of a server's resources, or of its resource templates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpListResourcesRequest {
    /// The server.
    pub server_name: String,
    /// Requests templates instead of resources.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub templates: bool,
    /// `next` of the page before; the first page when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl Message for McpListResourcesRequest {
    const TYPE: &'static str = "McpListResourcesRequest";
}

/// A page of a server's resources or resource templates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResourcePage {
    /// The server.
    pub server_name: String,
    /// Resources or templates, at most [`McpResource::MAX_LISTED`].
    #[serde(default, deserialize_with = "null_is_default")]
    pub resources: Vec<McpResource>,
    /// Number of entries of the server's page that are left out: unusable ones, and those beyond the limit.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "super::is_zero")]
    pub left_out: u32,
    /// Value of `after` for the next page; absent in the last one. Untrusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Message for McpResourcePage {
    const TYPE: &'static str = "McpResourcePage";
}

/// A resource, or a template of resources. Untrusted text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResource {
    /// URI, or a URI template by RFC 6570.
    pub uri: String,
    /// Name or title.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// Description.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,
    /// Type of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Size of the content in bytes, as stated by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl McpResource {
    /// Maximum number of resources in a page; further ones of the server's page are omitted.
    pub const MAX_LISTED: usize = 500;
    /// Longest URI, in bytes.
    pub const MAX_URI_BYTES: usize = 4096;
}

/// Request for the content of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpReadResourceRequest {
    /// The server.
    pub server_name: String,
    /// URI of a resource: a listed one, one that a result links to, or an expanded template.
    pub uri: String,
}

impl Message for McpReadResourceRequest {
    const TYPE: &'static str = "McpReadResourceRequest";
}

/// Content of a resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResourceContent {
    /// The server.
    pub server_name: String,
    /// The content, possibly in several parts: text, images, audio and resources. Untrusted.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Vec<ContentBlock>,
    /// Set when content beyond the bridge's limit is omitted.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_truncated: bool,
}

impl Message for McpResourceContent {
    const TYPE: &'static str = "McpResourceContent";
}

/// Resources of a server that have changed, announced to every caller. May be lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResourcesChanged {
    /// The server.
    pub server_name: String,
    /// The resources, at most [`MAX_URIS`](Self::MAX_URIS): those that callers have read.
    #[serde(default, deserialize_with = "null_is_default")]
    pub uris: Vec<String>,
}

impl McpResourcesChanged {
    /// Maximum number of resources in a message; the most that a bridge follows at a server.
    pub const MAX_URIS: usize = 64;
}

impl Message for McpResourcesChanged {
    const TYPE: &'static str = "McpResourcesChanged";
}
