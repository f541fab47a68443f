//! Export of a conversation as a file.

use std::{fmt::Write, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use rockbot_contracts::conversation::{HistoryBody, HistoryItem};
use serde_json::json;

use super::{
    history::{self, HistoryView},
    records::Record,
};
use crate::{
    api::{
        Api,
        body::QueryMap,
        problem::{Problem, ProblemBody},
    },
    identity::Identity,
};

/// Largest number of pages in an export.
const MAX_PAGES: usize = 32;

/// Returns the recorded items of a conversation as a file.
#[utoipa::path(get, path = "/api/v1/conversations/{id}/export", tag = "conversations",
    params(("id" = String, Path, description = "The conversation"),
        ("as" = Option<String>, Query, description = "`markdown`, the default, or `json`")),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = "default", body = ProblemBody)))]
pub(crate) async fn export(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    query: QueryMap,
) -> Result<Response, Problem> {
    let as_json = match query.get("as").unwrap_or("markdown") {
        "markdown" => false,
        "json" => true,
        _ => return Err(Problem::invalid("as must be markdown or json")),
    };
    let (conversation, record) = api.conversation(&identity, &id).await?;
    let (mut items, mut from) = (Vec::new(), 0);
    let mut is_whole = false;
    for _ in 0..MAX_PAGES {
        let (page, next) = history::page(&api.parts.client, &conversation, from).await?;
        let is_empty = page.is_empty();
        items.extend(page);
        match next {
            Some(next) if !is_empty => from = next,
            _ => {
                is_whole = true;
                break;
            }
        }
    }
    let (kind, extension, text) = if as_json {
        ("application/json", "json", to_json(&record, items, is_whole))
    } else {
        ("text/plain; charset=utf-8", "md", to_markdown(&record, &items, is_whole))
    };
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let name = format!("attachment; filename=\"conversation.{extension}\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

fn to_json(record: &Record, items: Vec<HistoryItem>, is_whole: bool) -> String {
    let items: Vec<HistoryView> = items.into_iter().map(Into::into).collect();
    json!({"agent": record.agent.as_str(), "title": record.title, "createdMs": record.created_ms,
        "isWhole": is_whole, "history": items})
    .to_string()
}

fn to_markdown(record: &Record, items: &[HistoryItem], is_whole: bool) -> String {
    let mut text = format!("# {}\n", record.title);
    for item in items {
        // Writing to a string cannot fail.
        let _ = write_item(&mut text, &record.agent.to_string(), &item.body);
    }
    if !is_whole {
        text.push_str("\n(The conversation is longer than this export.)\n");
    }
    text
}

fn write_item(text: &mut String, agent: &str, body: &HistoryBody) -> std::fmt::Result {
    match body {
        HistoryBody::Message { text: said, .. } | HistoryBody::Steered { text: said, .. } => {
            writeln!(text, "\n## You\n\n{said}")
        }
        HistoryBody::Model { text: said, calls } => {
            if !said.is_empty() {
                writeln!(text, "\n## {agent}\n\n{said}")?;
            }
            for call in calls {
                let fence = fence_for(&call.arguments);
                let (name, arguments) = (&call.tool_name, &call.arguments);
                writeln!(text, "\n### Call of {name}\n\n{fence}json\n{arguments}\n{fence}")?;
            }
            Ok(())
        }
        HistoryBody::Result { tool_name, text: result, error, executed, .. } => {
            let name = tool_name.as_deref().unwrap_or("a tool");
            let error = error.as_ref().map(|code| format!(", {}", code.as_str()));
            let executed = executed.map(|executed| format!(", executed: {executed}"));
            let notes = [error, executed].into_iter().flatten().collect::<String>();
            let fence = fence_for(result);
            writeln!(text, "\n### Result of {name}{notes}\n\n{fence}\n{result}\n{fence}")
        }
        HistoryBody::Answer { text: answer, .. } => writeln!(text, "\n## {agent}\n\n{answer}"),
        HistoryBody::Decided { decision } => writeln!(text, "\n*Decision on a call: {decision}*"),
        HistoryBody::Cancelled {} => writeln!(text, "\n*Cancelled*"),
        HistoryBody::Summary { text: summary } => writeln!(text, "\n## Summary\n\n{summary}"),
        HistoryBody::ApprovalAsked { .. }
        | HistoryBody::Feedback { .. }
        | HistoryBody::Resumed { .. }
        | HistoryBody::PutDown { .. }
        | HistoryBody::Other => Ok(()),
    }
}

/// Returns a fence that does not occur in the text.
fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_longer_than_those_in_the_text() {
        assert_eq!(fence_for("no fence"), "```");
        assert_eq!(fence_for("a ```` b"), "`````");
    }
}
