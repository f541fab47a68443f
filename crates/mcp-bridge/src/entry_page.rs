//! Pages of prompts, resources and resource templates with entries that do not follow the protocol.
//!
//! rmcp reads a page as a whole: one prompt without a name makes the response another message. Here each entry is
//! read for itself. Unreadable ones are left out, and their number is in the metadata of the page.

use rmcp::model::{
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, MetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{raw_list::RawList, raw_response::RawResponse};

/// Key in the metadata of a page with the number of its entries that are left out. One that a server sets itself is
/// removed.
const LEFT_OUT: &str = "rockbot/leftOut";

/// A page of prompts, resources or templates.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPage<'a> {
    #[serde(borrow)]
    prompts: Option<RawList<'a>>,
    #[serde(borrow)]
    resources: Option<RawList<'a>>,
    #[serde(borrow)]
    resource_templates: Option<RawList<'a>>,
    next_cursor: Option<String>,
}

/// Reads a page entry by entry. Returns `None` for any other message.
pub(crate) fn read(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    let RawResponse { id, result } =
        serde_json::from_slice::<RawResponse<RawPage<'_>>>(bytes).ok()?;
    let RawPage { prompts, resources, resource_templates, next_cursor } = result;
    let result = match (prompts, resources, resource_templates) {
        (Some(list), None, None) => {
            let (entries, meta) = readable(list);
            let mut page = ListPromptsResult::with_all_items(entries);
            (page.meta, page.next_cursor) = (meta, next_cursor);
            ServerResult::ListPromptsResult(page)
        }
        (None, Some(list), None) => {
            let (entries, meta) = readable(list);
            let mut page = ListResourcesResult::with_all_items(entries);
            (page.meta, page.next_cursor) = (meta, next_cursor);
            ServerResult::ListResourcesResult(page)
        }
        (None, None, Some(list)) => {
            let (entries, meta) = readable(list);
            let mut page = ListResourceTemplatesResult::with_all_items(entries);
            (page.meta, page.next_cursor) = (meta, next_cursor);
            ServerResult::ListResourceTemplatesResult(page)
        }
        _ => return None,
    };
    Some(ServerJsonRpcMessage::response(result, id))
}

/// Removes the number from the metadata of a page that was not read entry by entry: it is the server's.
pub(crate) fn without_left_out(mut message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    if let ServerJsonRpcMessage::Response(response) = &mut message {
        let meta = match &mut response.result {
            ServerResult::ListPromptsResult(page) => page.meta.as_mut(),
            ServerResult::ListResourcesResult(page) => page.meta.as_mut(),
            ServerResult::ListResourceTemplatesResult(page) => page.meta.as_mut(),
            _ => None,
        };
        if let Some(meta) = meta {
            meta.remove(LEFT_OUT);
        }
    }
    message
}

/// Returns the number of entries that were left out when the page was read.
pub(crate) fn left_out(meta: Option<&MetaObject>) -> usize {
    let left_out = meta.and_then(|meta| meta.get(LEFT_OUT)?.as_u64());
    left_out.and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

/// Returns the readable entries, and the metadata with the number of the others.
fn readable<T: DeserializeOwned>(list: RawList<'_>) -> (Vec<T>, Option<MetaObject>) {
    let listed = list.first.len() + list.more;
    let entries = list.first.into_iter().filter_map(|entry| serde_json::from_str(entry.get()).ok());
    let entries: Vec<T> = entries.collect();
    let left_out = listed - entries.len();
    let mut meta = MetaObject::default();
    meta.insert(LEFT_OUT.to_owned(), left_out.into());
    (entries, Some(meta))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    fn result(result: &str) -> ServerResult {
        let text = format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#);
        match frame::read(text.as_bytes()) {
            Ok(ServerJsonRpcMessage::Response(response)) => response.result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unreadable_entry_costs_only_itself() {
        let deep = format!(r#"{{"name":"deep","_meta":{}{}}}"#, "[".repeat(500), "]".repeat(500));
        let prompts = format!(
            r#"{{"prompts":[{{"name":"good"}},{{"name":7}},{{}},"text",{deep}],"nextCursor":"n"}}"#
        );
        let ServerResult::ListPromptsResult(page) = result(&prompts) else { panic!("{prompts}") };
        assert_eq!((page.prompts.len(), page.next_cursor.as_deref()), (1, Some("n")));
        assert_eq!(left_out(page.meta.as_ref()), 4);

        let resources = r#"{"resources":[{"uri":"a:1","name":"one"},{"name":"no uri"}]}"#;
        let ServerResult::ListResourcesResult(page) = result(resources) else {
            panic!("{resources}")
        };
        assert_eq!((page.resources.len(), left_out(page.meta.as_ref())), (1, 1));

        let templates =
            r#"{"resourceTemplates":[{"uriTemplate":1},{"uriTemplate":"a:{b}","name":"a"}]}"#;
        let ServerResult::ListResourceTemplatesResult(page) = result(templates) else {
            panic!("{templates}")
        };
        assert_eq!((page.resource_templates.len(), left_out(page.meta.as_ref())), (1, 1));
    }

    #[test]
    fn number_in_the_metadata_of_the_server_is_ignored() {
        let meta = format!(r#""_meta":{{"rockbot/leftOut":{},"own":1}}"#, u64::MAX);
        let has_own = |meta: Option<MetaObject>| meta.is_some_and(|meta| meta.contains_key("own"));

        let prompts = format!(r#"{{"prompts":[{{"name":"good"}}],{meta}}}"#);
        let ServerResult::ListPromptsResult(page) = result(&prompts) else { panic!("{prompts}") };
        assert_eq!((page.prompts.len(), left_out(page.meta.as_ref())), (1, 0));
        assert!(has_own(page.meta));

        let resources = format!(r#"{{"resources":[{{"uri":"a:1","name":"one"}}],{meta}}}"#);
        let ServerResult::ListResourcesResult(page) = result(&resources) else {
            panic!("{resources}")
        };
        assert_eq!((page.resources.len(), left_out(page.meta.as_ref())), (1, 0));
        assert!(has_own(page.meta));

        let templates =
            format!(r#"{{"resourceTemplates":[{{"uriTemplate":"a:{{b}}","name":"a"}}],{meta}}}"#);
        let ServerResult::ListResourceTemplatesResult(page) = result(&templates) else {
            panic!("{templates}")
        };
        assert_eq!((page.resource_templates.len(), left_out(page.meta.as_ref())), (1, 0));
        assert!(has_own(page.meta));

        let unreadable = format!(r#"{{"prompts":[{{"name":"good"}},7],{meta}}}"#);
        let ServerResult::ListPromptsResult(page) = result(&unreadable) else {
            panic!("{unreadable}")
        };
        assert_eq!((page.prompts.len(), left_out(page.meta.as_ref())), (1, 1));
    }

    #[test]
    fn readable_page_is_unchanged() {
        let ServerResult::ListPromptsResult(page) = result(r#"{"prompts":[{"name":"good"}]}"#)
        else {
            panic!("another result")
        };
        assert_eq!((page.meta.is_none(), left_out(page.meta.as_ref())), (true, 0));
        for other in [
            r#"{"prompts":7}"#,
            r#"{"prompts":[7],"resources":[7]}"#,
            r#"{"prompts":[{}],"nextCursor":1}"#,
        ] {
            assert!(matches!(result(other), ServerResult::CustomResult(_)), "{other}");
        }
    }
}
