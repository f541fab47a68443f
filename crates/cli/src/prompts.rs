//! Prompts of MCP servers for people: `/prompt` in a chat.

use std::sync::Arc;

use rockbot_contracts::mcp::{McpGetPromptRequest, McpPrompt, McpServerSummary};
use rockbot_tool_rpc::mcp::McpGateway;
use tokio::sync::OnceCell;

use crate::{fleet::Fleet, render};

/// The beginning of a line that sends a prompt of a server.
const COMMAND: &str = "/prompt";
/// The longest text of a prompt that is sent as a message, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The name of the chat towards the bridges.
const CALLER: &str = "chat";

/// The prompts of the servers of a fleet. The servers are discovered by the first command.
pub(crate) struct Prompts<'a> {
    fleet: &'a Fleet,
    gateway: OnceCell<Arc<dyn McpGateway>>,
}

/// The effect of a line in a chat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A message for the agent.
    Message(String),
    /// A text for the person; nothing is sent.
    Notice(String),
}

impl<'a> Prompts<'a> {
    pub(crate) fn new(fleet: &'a Fleet) -> Self {
        Self { fleet, gateway: OnceCell::new() }
    }

    /// Returns the effect of a line: the text of a prompt for `/prompt SERVER NAME`, a list for `/prompt`,
    /// and otherwise the line itself.
    pub(crate) async fn read(&self, line: &str) -> Input {
        let Some(rest) = line.strip_prefix(COMMAND) else { return Input::Message(line.to_owned()) };
        if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
            return Input::Message(line.to_owned());
        }
        let gateway = self.gateway.get_or_try_init(async || {
            self.fleet.mcp_servers(CALLER, None).await.map(|servers| servers.gateway)
        });
        match gateway.await {
            Ok(gateway) => expand(gateway.as_ref(), rest).await,
            Err(failure) => Input::Notice(render::clean(&format!("{:#}", failure.cause))),
        }
    }
}

/// Returns the effect of the words after `/prompt`.
async fn expand(gateway: &dyn McpGateway, words: &str) -> Input {
    let words: Vec<_> = words.split_whitespace().map(ToOwned::to_owned).collect();
    let [server, prompt, arguments @ ..] = words.as_slice() else {
        return Input::Notice(list(gateway, words.first()));
    };
    let request = match request(server, prompt, arguments) {
        Ok(request) => request,
        Err(problem) => return Input::Notice(problem),
    };
    match gateway.prompt(request).await.map(|messages| messages.to_text()) {
        Ok(text) if text.trim().is_empty() => Input::Notice("the prompt is empty".to_owned()),
        Ok(text) if text.len() > MAX_TEXT_BYTES => Input::Notice(format!(
            "the prompt has {} bytes; the limit is {MAX_TEXT_BYTES}",
            text.len()
        )),
        // The text is sent as it is shown.
        Ok(text) => Input::Message(render::clean(&text)),
        Err(error) => Input::Notice(render::clean(&error.message)),
    }
}

/// Returns the text of a prompt as it is shown before it is sent.
pub(crate) fn shown(text: &str) -> String {
    let size = render::size(text.len() as u64);
    let lines: String = text.lines().map(|line| format!("\n  │ {line}")).collect();
    format!("the server wrote this message ({size}), which the model reads as yours:{lines}")
}

/// Returns the prompts of all servers, or of one, as a table.
fn list(gateway: &dyn McpGateway, only: Option<&String>) -> String {
    let index = gateway.index().borrow().clone();
    let servers = index
        .servers()
        .filter(|server| only.is_none_or(|only| only.eq_ignore_ascii_case(&server.name)));
    let servers: Vec<_> = servers.collect();
    let rows: Vec<_> = servers
        .iter()
        .flat_map(|server| {
            let name = render::clean(&server.name);
            server.prompts.iter().map(move |prompt| {
                let mut row = row(prompt);
                row.insert(0, name.clone());
                row
            })
        })
        .collect();
    let left_out: String =
        servers.into_iter().filter_map(left_out).map(|text| format!("\n{text}")).collect();
    if rows.is_empty() {
        return format!("no MCP server offers prompts{left_out}");
    }
    let table = render::table(&["server", "prompt", "arguments", "description"], rows);
    format!("{table}{left_out}\nsend one with /prompt SERVER PROMPT [NAME=VALUE …]")
}

/// Returns a note on the prompts of a server that are left out; `None` without such prompts.
pub(crate) fn left_out(server: &McpServerSummary) -> Option<String> {
    let left_out = match server.prompts_left_out {
        0 => return None,
        1 => "1 prompt is".to_owned(),
        number => format!("{number} prompts are"),
    };
    Some(format!(
        "of {}, {left_out} left out: unusable, or beyond the limits of {} prompts and 16 KiB",
        render::clean(&server.name),
        McpPrompt::MAX_LISTED
    ))
}

/// Returns the row of a prompt in a table: its name, its arguments and its description.
pub(crate) fn row(prompt: &McpPrompt) -> Vec<String> {
    let arguments = prompt.arguments.iter().map(|argument| {
        if argument.required { argument.name.clone() } else { format!("[{}]", argument.name) }
    });
    let arguments = arguments.collect::<Vec<_>>().join(" ");
    vec![render::clean(&prompt.name), render::clean(&arguments), render::clean(&prompt.description)]
}

/// Returns the request for a prompt with arguments of the form `NAME=VALUE`. A word without `=` continues the
/// value before it.
///
/// # Errors
/// When the first argument has no `=`.
pub(crate) fn request(
    server: &str,
    prompt: &str,
    arguments: &[String],
) -> Result<McpGetPromptRequest, String> {
    let mut request = McpGetPromptRequest {
        server_name: server.to_owned(),
        prompt_name: prompt.to_owned(),
        ..McpGetPromptRequest::default()
    };
    let mut last: Option<String> = None;
    for word in arguments {
        match (word.split_once('='), &last) {
            (Some((name, value)), _) => {
                request.arguments.insert(name.to_owned(), value.to_owned());
                last = Some(name.to_owned());
            }
            (None, Some(last)) => {
                let value = request.arguments.entry(last.clone()).or_default();
                value.push(' ');
                value.push_str(word);
            }
            (None, None) => {
                return Err(format!("{word:?} is not an argument; write NAME=VALUE"));
            }
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn arguments_may_have_several_words() {
        let request = request("s", "p", &words("title=Pride and Prejudice year=1813")).unwrap();
        assert_eq!(request.arguments["title"], "Pride and Prejudice");
        assert_eq!(request.arguments["year"], "1813");
        let problem = super::request("s", "p", &words("Emma")).unwrap_err();
        assert!(problem.contains("NAME=VALUE"), "{problem}");
    }

    #[test]
    fn optional_arguments_are_marked() {
        let prompt: McpPrompt = serde_json::from_value(serde_json::json!({"name": "p",
            "arguments": [{"name": "a", "required": true}, {"name": "b"}]}))
        .unwrap();
        assert_eq!(row(&prompt)[1], "a [b]");
    }
}
