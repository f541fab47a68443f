//! Resources and prompts of a server: requests in its session, within bounds.

use std::{collections::BTreeMap, time::Duration};

use rmcp::{
    RoleClient,
    model::{
        ErrorCode, GetPromptRequestParams, GetPromptResponse, JsonObject, PaginatedRequestParams,
        Prompt, ReadResourceRequestParams, ReadResourceResponse, Resource, ResourceTemplate, Role,
    },
    service::{Peer, ServiceError},
};
use rockbot_contracts::{
    ContentBlock,
    mcp::{
        McpManageErrorCode, McpPrompt, McpPromptArgument, McpPromptMessage, McpPromptRole,
        McpResource,
    },
    outside_text::{is_name, plain},
};
use rockbot_tools::ToolResult;
use tokio::time::timeout;

use crate::{
    entry_page,
    result::{convert_block, convert_resource},
    transport::describe_request,
};

/// The time limit for a request. The caller waits up to 25 s for its reply.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of the content of a resource or a prompt, in bytes. The remainder is omitted.
const MAX_CONTENT_BYTES: usize = 2 * 1024 * 1024;
/// The maximum number of parts of a resource and of messages of a prompt.
const MAX_PARTS: usize = 200;
/// The maximum number of pages of the list of prompts.
const MAX_PROMPT_PAGES: usize = 10;
/// The maximum size of the announced prompts of a server, in bytes of JSON.
const MAX_PROMPTS_BYTES: usize = 16 * 1024;
/// The longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 300;
/// The longest name of a resource, in characters.
const MAX_NAME_CHARS: usize = 128;
/// The longest position in a list, in bytes.
const MAX_CURSOR_BYTES: usize = 4096;

/// A request about a resource or a prompt that has no result.
#[derive(Debug)]
pub(crate) struct ContentFailure {
    pub(crate) code: McpManageErrorCode,
    pub(crate) message: String,
}

impl ContentFailure {
    pub(crate) fn new(code: McpManageErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The server does not offer `what`.
    pub(crate) fn not_offered(what: &str) -> Self {
        Self::new(McpManageErrorCode::NotFound, format!("that server offers no {what}"))
    }
}

/// A page of resources.
pub(crate) struct ResourceList {
    pub(crate) resources: Vec<McpResource>,
    /// The number of entries of the page that are left out: unusable ones, and those beyond the limit.
    pub(crate) left_out: usize,
    pub(crate) next: Option<String>,
}

/// The prompts of a server within bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PromptList {
    pub(crate) prompts: Vec<McpPrompt>,
    /// The number of prompts that are left out, at least: unusable ones, and those beyond the limits.
    pub(crate) left_out: usize,
}

/// Content within bounds.
pub(crate) struct BoundedContent {
    pub(crate) content: Vec<ContentBlock>,
    pub(crate) is_truncated: bool,
}

/// Returns a page of the resources, or of the resource templates.
pub(crate) async fn list_resources(
    peer: &Peer<RoleClient>,
    templates: bool,
    after: Option<String>,
) -> Result<ResourceList, ContentFailure> {
    if after.as_ref().is_some_and(|after| after.len() > MAX_CURSOR_BYTES) {
        let message = format!("after: longer than {MAX_CURSOR_BYTES} bytes");
        return Err(ContentFailure::new(McpManageErrorCode::InvalidRequest, message));
    }
    let mut page = PaginatedRequestParams::default();
    page.cursor = after;
    let (resources, unreadable, next): (Vec<_>, _, _) = if templates {
        let listed = request(peer.list_resource_templates(Some(page))).await?;
        let resources = listed.resource_templates.into_iter().map(template).collect();
        (resources, entry_page::left_out(listed.meta.as_ref()), listed.next_cursor)
    } else {
        let listed = request(peer.list_resources(Some(page))).await?;
        let resources = listed.resources.into_iter().map(resource).collect();
        (resources, entry_page::left_out(listed.meta.as_ref()), listed.next_cursor)
    };
    let listed = resources.len().saturating_add(unreadable);
    let usable = resources.into_iter().flatten();
    let resources: Vec<_> = usable.take(McpResource::MAX_LISTED).collect();
    let next = next.filter(|next| next.len() <= MAX_CURSOR_BYTES);
    Ok(ResourceList { left_out: listed - resources.len(), resources, next })
}

/// Returns the content of a resource.
pub(crate) async fn read_resource(
    peer: &Peer<RoleClient>,
    uri: &str,
) -> Result<BoundedContent, ContentFailure> {
    if !is_uri(uri) {
        let message =
            format!("uri: must have 1 to {} printable characters", McpResource::MAX_URI_BYTES);
        return Err(ContentFailure::new(McpManageErrorCode::InvalidRequest, message));
    }
    let read = peer.read_resource_once(ReadResourceRequestParams::new(uri));
    match request(read).await? {
        ReadResourceResponse::Complete(result) => {
            let content = result.contents.into_iter().map(convert_resource);
            Ok(bounded(content))
        }
        _ => Err(needs_input()),
    }
}

/// Returns the prompts of a server, within bounds.
///
/// # Errors
/// A message for the operator.
pub(crate) async fn list_prompts(peer: &Peer<RoleClient>) -> Result<PromptList, String> {
    let (mut prompts, mut left_out) = (Vec::new(), 0_usize);
    let (mut cursor, mut bytes) = (None, 0);
    for _ in 0..MAX_PROMPT_PAGES {
        let mut page = PaginatedRequestParams::default();
        page.cursor = cursor;
        let listed = timeout(REQUEST_TIMEOUT, peer.list_prompts(Some(page))).await;
        let listed = listed.map_err(|_| "the server did not reply in time".to_owned())?;
        let page = listed.map_err(|error| describe_request(&error))?;
        left_out = left_out.saturating_add(entry_page::left_out(page.meta.as_ref()));
        for prompt in page.prompts.into_iter().map(announced) {
            let Some(prompt) = prompt else {
                left_out = left_out.saturating_add(1);
                continue;
            };
            bytes += serde_json::to_vec(&prompt).map_or(MAX_PROMPTS_BYTES, |json| json.len());
            if bytes > MAX_PROMPTS_BYTES || prompts.len() >= McpPrompt::MAX_LISTED {
                left_out = left_out.saturating_add(1);
            } else {
                prompts.push(prompt);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    // The pages that are not requested have at least one.
    left_out = left_out.saturating_add(usize::from(cursor.is_some()));
    Ok(PromptList { prompts, left_out })
}

/// Returns the messages of a prompt.
pub(crate) async fn get_prompt(
    peer: &Peer<RoleClient>,
    name: &str,
    arguments: BTreeMap<String, String>,
) -> Result<Vec<McpPromptMessage>, ContentFailure> {
    let mut params = GetPromptRequestParams::new(name);
    let arguments: JsonObject =
        arguments.into_iter().map(|(name, value)| (name, value.into())).collect();
    params.arguments = (!arguments.is_empty()).then_some(arguments);
    let GetPromptResponse::Complete(result) = request(peer.get_prompt_once(params)).await? else {
        return Err(needs_input());
    };
    let roles: Vec<_> = result.messages.iter().map(|message| role(&message.role)).collect();
    let content = result.messages.into_iter().map(|message| convert_block(message.content));
    let content = bounded(content).content;
    let messages = roles.into_iter().zip(content);
    Ok(messages.map(|(role, content)| McpPromptMessage { role, content }).collect())
}

/// Waits for a response, within the time limit. The server is notified when this is dropped.
async fn request<T>(
    sent: impl Future<Output = Result<T, ServiceError>>,
) -> Result<T, ContentFailure> {
    let response = timeout(REQUEST_TIMEOUT, sent).await.map_err(|_| {
        ContentFailure::new(McpManageErrorCode::Unavailable, "the server did not reply in time")
    })?;
    response.map_err(|error| {
        let reason = describe_request(&error);
        let code = match &error {
            ServiceError::McpError(error) => match error.code {
                ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST => {
                    McpManageErrorCode::InvalidRequest
                }
                ErrorCode::RESOURCE_NOT_FOUND | ErrorCode::METHOD_NOT_FOUND => {
                    McpManageErrorCode::NotFound
                }
                // The request reached the server: another bridge would get the same error.
                _ => McpManageErrorCode::Other,
            },
            _ => McpManageErrorCode::Unavailable,
        };
        ContentFailure::new(code, format!("the server failed: {reason}"))
    })
}

fn needs_input() -> ContentFailure {
    let message = "the server requires input from a user, which is not supported";
    ContentFailure::new(McpManageErrorCode::NotPermitted, message)
}

/// Omits content beyond the limits, and hidden characters.
fn bounded(content: impl Iterator<Item = ContentBlock>) -> BoundedContent {
    let (mut kept, mut is_truncated) = (Vec::new(), false);
    let mut left = MAX_CONTENT_BYTES;
    for mut block in content {
        if kept.len() == MAX_PARTS {
            is_truncated = true;
            break;
        }
        let size = match &mut block {
            ContentBlock::Text { text } | ContentBlock::Resource { text: Some(text), .. } => {
                if text.len() > left {
                    text.truncate(text.floor_char_boundary(left));
                    is_truncated = true;
                }
                text.len()
            }
            ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => data.len(),
            ContentBlock::Resource { text: None, .. } => 0,
        };
        if size > left {
            is_truncated = true;
            let text = format!("[{size} bytes of base64 left out: too large]");
            block = ContentBlock::Text { text };
        } else {
            left -= size;
        }
        kept.push(block);
    }
    let result = ToolResult { content: kept, ..ToolResult::default() };
    BoundedContent { content: result.without_hidden_text().content, is_truncated }
}

fn resource(resource: Resource) -> Option<McpResource> {
    let Resource { uri, name, title, description, mime_type, size, .. } = resource;
    let listed = listed(uri, &title.unwrap_or(name), description, mime_type)?;
    Some(McpResource { size, ..listed })
}

fn template(template: ResourceTemplate) -> Option<McpResource> {
    let ResourceTemplate { uri_template, name, title, description, mime_type, .. } = template;
    listed(uri_template, &title.unwrap_or(name), description, mime_type)
}

/// Returns a list entry; `None` if its URI cannot be used in a request.
fn listed(
    uri: String,
    name: &str,
    description: Option<String>,
    mime_type: Option<String>,
) -> Option<McpResource> {
    is_uri(&uri).then(|| McpResource {
        uri,
        name: line(name, MAX_NAME_CHARS),
        description: line(&description.unwrap_or_default(), MAX_DESCRIPTION_CHARS),
        mime_type: mime_type.map(|kind| line(&kind, MAX_NAME_CHARS)),
        size: None,
    })
}

/// Returns whether a text can be the URI of a resource. Its scheme is the server's own matter.
fn is_uri(text: &str) -> bool {
    let is_printable = plain(text, McpResource::MAX_URI_BYTES) == text && !text.contains('\n');
    (1..=McpResource::MAX_URI_BYTES).contains(&text.len()) && is_printable
}

/// Returns a prompt as it is announced; `None` if its name cannot be used in a request.
fn announced(prompt: Prompt) -> Option<McpPrompt> {
    let Prompt { name, title, description, arguments, .. } = prompt;
    let arguments = arguments.unwrap_or_default().into_iter();
    let arguments: Vec<_> = arguments
        .map(|argument| McpPromptArgument {
            description: line(&argument.description.unwrap_or_default(), MAX_DESCRIPTION_CHARS),
            required: argument.required.unwrap_or(false),
            name: argument.name,
        })
        .collect();
    // Without a required argument that has an unusable name, it could not be requested.
    let is_usable = is_name(&name)
        && arguments.len() <= McpPrompt::MAX_ARGUMENTS
        && arguments.iter().all(|argument| is_name(&argument.name));
    let description = description.or(title).unwrap_or_default();
    is_usable.then(|| McpPrompt {
        name,
        description: line(&description, MAX_DESCRIPTION_CHARS),
        arguments,
    })
}

fn line(text: &str, max_chars: usize) -> String {
    plain(text, max_chars).replace(['\n', '\t'], " ")
}

fn role(role: &Role) -> McpPromptRole {
    match role {
        Role::Assistant => McpPromptRole::Assistant,
        _ => McpPromptRole::User,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_bounded_and_stripped() {
        let text = |text: &str| ContentBlock::Text { text: text.to_owned() };
        let image =
            |bytes| ContentBlock::Image { data: "a".repeat(bytes), mime_type: String::new() };
        let read = bounded([text("a\u{202e}b"), image(MAX_CONTENT_BYTES)].into_iter());
        assert!(read.is_truncated);
        assert_eq!(read.content[0], text("ab"));
        assert!(
            matches!(&read.content[1], ContentBlock::Text { text } if text.contains("too large"))
        );
        let long = "é".repeat(MAX_CONTENT_BYTES);
        let read = bounded([text(&long), text("after")].into_iter());
        let sizes = read.content.iter().map(|block| match block {
            ContentBlock::Text { text } => text.len(),
            _ => usize::MAX,
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [MAX_CONTENT_BYTES, 0]);
        let many = (0..2 * MAX_PARTS).map(|_| text("x"));
        assert_eq!(bounded(many).content.len(), MAX_PARTS);
        assert!(!bounded([text("whole")].into_iter()).is_truncated);
    }

    #[test]
    fn unusable_names_and_uris_are_not_listed() {
        let prompt = |value| announced(serde_json::from_value(value).unwrap());
        let usable = prompt(json!({"name": "review", "title": "Review",
            "arguments": [{"name": "n", "required": true, "description": "a\nb"}]}));
        let usable = usable.unwrap();
        assert_eq!((usable.description.as_str(), usable.needs_no_arguments()), ("Review", false));
        assert_eq!(usable.arguments[0].description, "a b");
        assert!(prompt(json!({"name": "a\u{1b}[2J"})).is_none());
        let hidden = json!({"name": "x", "arguments": [{"name": "\u{202e}"}]});
        assert!(prompt(hidden).is_none());
        for uri in ["", "a:\u{202e}b", "a:\nb", &"a".repeat(McpResource::MAX_URI_BYTES + 1)] {
            assert!(!is_uri(uri), "{uri:?}");
        }
        assert!(is_uri("file:///ä b.md") && is_uri("repo://{owner}/{name}"));
    }
}
