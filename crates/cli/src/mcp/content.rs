//! `rockbot mcp resources`, `read` and `prompt`: what servers offer besides tools.

use std::io::{IsTerminal, Write};

use base64::{Engine, prelude::BASE64_STANDARD};
use rockbot_contracts::{
    ContentBlock,
    mcp::{McpListResourcesRequest, McpReadResourceRequest, McpResource},
};
use rockbot_service::exit;
use serde_json::json;

use super::{disconnected, rejected_by};
use crate::{
    failure::{Failure, OrExit, Outcome},
    fleet::McpServers,
    print::{note, outln},
    prompts, render,
};

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 20;

pub(super) async fn list_resources(
    servers: &McpServers,
    server: String,
    templates: bool,
    json: bool,
) -> Outcome {
    let mut resources: Vec<McpResource> = Vec::new();
    let (mut after, mut left_out) = (None, 0_u32);
    for _ in 0..MAX_PAGES {
        let request = McpListResourcesRequest { server_name: server.clone(), templates, after };
        let page = servers
            .gateway
            .resources(request)
            .await
            .map_err(|error| rejected_by(servers, &error))?;
        resources.extend(page.resources);
        left_out = left_out.saturating_add(page.left_out);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if json {
        outln!("{}", render::json(&json!(resources)))?;
        return Ok(exit::OK);
    }
    let rows = resources.iter().map(|resource| {
        let McpResource { uri, name, description, mime_type, size } = resource;
        vec![
            render::clean(uri),
            render::clean(name),
            mime_type.as_deref().map(render::clean).unwrap_or_default(),
            size.map(render::size).unwrap_or_default(),
            render::clean(description),
        ]
    });
    outln!("{}", render::table(&["uri", "name", "type", "size", "description"], rows))?;
    if left_out > 0 {
        let entries = if left_out == 1 { "1 entry is" } else { &format!("{left_out} entries are") };
        note!("{entries} left out: unusable, or beyond the limit of a page");
    }
    if after.is_some() {
        note!("the server has more; these are the first {}", resources.len());
    }
    Ok(exit::OK)
}

pub(super) async fn read(
    servers: &McpServers,
    server_name: String,
    uri: String,
    json: bool,
) -> Outcome {
    let request = McpReadResourceRequest { server_name, uri };
    let read = servers
        .gateway
        .read_resource(request)
        .await
        .map_err(|error| rejected_by(servers, &error))?;
    if json {
        outln!("{}", render::json(&json!(read)))?;
        return Ok(exit::OK);
    }
    let mut stdout = std::io::stdout().lock();
    for block in &read.content {
        match block {
            ContentBlock::Text { text } | ContentBlock::Resource { text: Some(text), .. } => {
                // Control characters are removed only for a terminal.
                let text = if stdout.is_terminal() { render::clean(text) } else { text.clone() };
                stdout.write_all(text.as_bytes())?;
                if stdout.is_terminal() && !text.ends_with('\n') {
                    stdout.write_all(b"\n")?;
                }
            }
            ContentBlock::Image { data, mime_type } | ContentBlock::Audio { data, mime_type } => {
                if stdout.is_terminal() {
                    let kind = render::clean(mime_type);
                    return Err(Failure::usage(format!(
                        "the resource is {kind}; redirect the output to a file"
                    )));
                }
                let bytes = BASE64_STANDARD.decode(data).or_exit(exit::ANSWERED_WITH_ERROR)?;
                stdout.write_all(&bytes)?;
            }
            ContentBlock::Resource { uri, .. } => {
                note!("the content of {} is not included", render::clean(uri));
            }
        }
    }
    stdout.flush()?;
    if read.is_truncated {
        note!("the resource is longer than the bridge permits; the rest is left out");
    }
    Ok(exit::OK)
}

pub(super) async fn prompt(
    servers: &McpServers,
    server: &str,
    prompt: Option<String>,
    arguments: &[String],
    json: bool,
) -> Outcome {
    let Some(prompt) = prompt else {
        let index = servers.gateway.index().borrow().clone();
        let server = index.get(server).ok_or_else(|| {
            let reason = disconnected(&servers.gateway.states().borrow(), server);
            Failure::unavailable(reason.unwrap_or_else(|| {
                format!("MCP server {} is not connected", render::clean(server))
            }))
        })?;
        if json {
            outln!("{}", render::json(&json!(server.prompts)))?;
            return Ok(exit::OK);
        }
        let rows = server.prompts.iter().map(prompts::row);
        outln!("{}", render::table(&["prompt", "arguments", "description"], rows))?;
        if let Some(left_out) = prompts::left_out(server) {
            note!("{left_out}");
        }
        return Ok(exit::OK);
    };
    let request = prompts::request(server, &prompt, arguments).map_err(Failure::usage)?;
    let messages =
        servers.gateway.prompt(request).await.map_err(|error| rejected_by(servers, &error))?;
    if json {
        outln!("{}", render::json(&json!(messages)))?;
    } else {
        outln!("{}", render::clean(&messages.to_text()))?;
    }
    Ok(exit::OK)
}
