//! Pages of a tool list with definitions that do not follow the protocol, or that rmcp reads only in part.
//!
//! rmcp reads a page as a whole: one definition without a schema makes the response another message, and one
//! number beyond the range of a double, or one schema that nests too deeply for the parser, makes it invalid JSON.
//! Here each definition is read for itself. An unreadable one stays in the list under its name, marked with the
//! reason.

use std::{collections::BTreeSet, sync::Arc};

use rmcp::model::{ListToolsResult, ServerJsonRpcMessage, ServerResult, Tool};
use rockbot_contracts::json::{MAX_DEPTH, is_too_deep};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{raw_list::RawList, raw_response::RawResponse};

/// The longest name of an unreadable definition, in characters.
const MAX_NAME_CHARS: usize = 80;
/// Key in the metadata of an unreadable definition. A server that sets it itself withdraws its own tool.
const UNREADABLE: &str = "rockbot/unreadable";
/// Key in the metadata of a listed tool that can only be called as a task. A server that sets it itself
/// withdraws its own tool.
const REQUIRES_TASK: &str = "rockbot/requiresTask";

/// A page of a tool list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPage<'a> {
    #[serde(borrow)]
    tools: RawList<'a>,
    next_cursor: Option<String>,
}

/// The parts of a definition that every tool has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTool<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
}

/// Reads a page of a tool list, definition by definition. Returns `None` for any other message.
pub(crate) fn read(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    let RawResponse { id, result } =
        serde_json::from_slice::<RawResponse<RawPage<'_>>>(bytes).ok()?;
    let mut list =
        ListToolsResult::with_all_items(result.tools.first.into_iter().map(tool).collect());
    list.next_cursor = result.next_cursor;
    Some(ServerJsonRpcMessage::response(ServerResult::ListToolsResult(list), id))
}

/// Returns why the definition of a listed tool cannot be read.
pub(crate) fn unreadable_reason(tool: &Tool) -> Option<&str> {
    Some(tool.meta.as_ref()?.get(UNREADABLE)?.as_str().unwrap_or("its definition cannot be read"))
}

fn tool(raw: &RawValue) -> Tool {
    let error = match serde_json::from_str(raw.get()) {
        Ok(tool) => return tool,
        Err(error) => error,
    };
    let RawTool { name, input_schema } =
        serde_json::from_str(raw.get()).unwrap_or(RawTool { name: None, input_schema: None });
    let text = name.and_then(|name| serde_json::from_str::<String>(name.get()).ok());
    let reason = if !raw.get().starts_with('{') {
        "its definition is not an object".to_owned()
    } else if text.is_none() {
        "its name is missing or not a string".to_owned()
    } else {
        match input_schema {
            None => "its inputSchema is missing or null; a tool without arguments has the schema \
                     {\"type\": \"object\"}"
                .to_owned(),
            Some(schema) if !schema.get().starts_with('{') => {
                "its inputSchema is not an object".to_owned()
            }
            Some(_) if is_too_deep(&error) => {
                format!("its definition nests deeper than {MAX_DEPTH} levels of JSON")
            }
            Some(_) => format!("its definition cannot be read: {}", without_position(&error)),
        }
    };
    let name = text.as_deref().or_else(|| Some(name?.get())).unwrap_or("(no name)");
    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
    let mut tool = Tool::new(name, "", Arc::default());
    tool.meta.get_or_insert_default().insert(UNREADABLE.to_owned(), reason.into());
    tool
}

/// Returns the text of an error without its position, which is one within the definition.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).map_or(text.clone(), ToOwned::to_owned)
}

/// The part of a page that rmcp does not parse.
#[derive(Deserialize)]
struct TaskSupportPage<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct TaskSupport {
    name: String,
    execution: Option<Execution>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Execution {
    task_support: Option<String>,
}

/// Marks the tools that can only be called as tasks, which the bridge does not support.
pub(crate) fn mark_task_tools(bytes: &[u8], tools: &mut [Tool]) {
    const KEY: &[u8] = b"\"taskSupport\"";
    if !bytes.windows(KEY.len()).any(|part| part == KEY) {
        return;
    }
    let Ok(RawResponse { result, .. }) =
        serde_json::from_slice::<RawResponse<TaskSupportPage<'_>>>(bytes)
    else {
        return;
    };
    // A tool with an unreadable name is already marked as unreadable.
    let listed = result.tools.into_iter();
    let listed = listed.filter_map(|tool| serde_json::from_str::<TaskSupport>(tool.get()).ok());
    let required = listed.filter(|tool| {
        let support =
            tool.execution.as_ref().and_then(|execution| execution.task_support.as_deref());
        support == Some("required")
    });
    let required: BTreeSet<_> = required.map(|tool| tool.name).collect();
    for tool in tools.iter_mut().filter(|tool| required.contains(tool.name.as_ref())) {
        tool.meta.get_or_insert_default().insert(REQUIRES_TASK.to_owned(), true.into());
    }
}

/// Returns whether a listed tool can only be called as a task.
pub(crate) fn requires_task(tool: &Tool) -> bool {
    tool.meta.as_ref().is_some_and(|meta| meta.contains_key(REQUIRES_TASK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_list::MAX_ENTRIES;

    #[track_caller]
    fn page(tools: &str) -> ListToolsResult {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":3,"result":{{"tools":[{tools}],"nextCursor":"n"}}}}"#
        );
        match read(text.as_bytes()) {
            Some(ServerJsonRpcMessage::Response(response)) => match response.result {
                ServerResult::ListToolsResult(list) => list,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unreadable_definition_is_marked_with_the_reason() {
        let large =
            format!(r#"{{"name":"large","inputSchema":{{"maximum":1{}}}}}"#, "0".repeat(400));
        let list = page(
            &[
                r#"{"name":"good","inputSchema":{}}"#,
                r#"{"name":"missing"}"#,
                r#"{"name":"null","inputSchema":null}"#,
                r#"{"name":"boolean","inputSchema":true}"#,
                r#"{"name":5,"inputSchema":{}}"#,
                r#"{"inputSchema":{}}"#,
                r#"{"name":"text","inputSchema":{},"description":7}"#,
                &large,
                "7",
            ]
            .join(","),
        );
        assert_eq!(list.next_cursor.as_deref(), Some("n"));
        let reasons: Vec<_> =
            list.tools.iter().map(|tool| (tool.name.as_ref(), unreadable_reason(tool))).collect();
        let expected = [
            ("good", None),
            ("missing", Some("inputSchema is missing")),
            ("null", Some("inputSchema is missing or null")),
            ("boolean", Some("inputSchema is not an object")),
            ("5", Some("name is missing or not a string")),
            ("(no name)", Some("name is missing or not a string")),
            ("text", Some("cannot be read: invalid type: integer `7`, expected a string")),
            ("large", Some("cannot be read: number out of range")),
            ("(no name)", Some("not an object")),
        ];
        assert_eq!(reasons.len(), expected.len());
        for ((name, reason), (expected_name, part)) in reasons.into_iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert_eq!(reason.is_some(), part.is_some(), "{name}: {reason:?}");
            assert!(
                reason.unwrap_or_default().contains(part.unwrap_or_default()),
                "{name}: {reason:?}"
            );
            assert!(!reason.unwrap_or_default().contains("column"), "{name}: {reason:?}");
        }
    }

    #[test]
    fn definition_that_nests_too_deeply_is_marked() {
        let schema = |levels: usize| {
            format!("{}{{}}{}", r#"{"properties":{"x":"#.repeat(levels), "}}".repeat(levels))
        };
        for levels in [70, 100_000] {
            let deep = format!(r#"{{"name":"deep","inputSchema":{}}}"#, schema(levels));
            let text = format!(
                r#"{{"id":3,"result":{{"tools":[{deep},{{"name":"good","inputSchema":{{}}}}]}}}}"#
            );
            let mut message = crate::frame::read(text.as_bytes()).unwrap();
            let tools = crate::frame::listed_tools(&mut message).unwrap();
            let reasons: Vec<_> = tools.iter().map(unreadable_reason).collect();
            assert!(reasons[0].unwrap().contains("nests deeper than 127 levels"), "{reasons:?}");
            assert_eq!((tools.len(), reasons[1]), (2, None), "{levels}");
        }
    }

    #[test]
    fn page_is_bounded() {
        let list = page(&vec!["1"; 5 * MAX_ENTRIES].join(","));
        assert_eq!(list.tools.len(), MAX_ENTRIES);
    }
}
