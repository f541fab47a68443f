//! `rockbot call`: a call as the journal has it.

use rockbot_contracts::{ToolCallId, ToolError, ToolInvokeResponse};
use rockbot_service::exit;
use rockbot_store::{Clock, StoreUrl};
use rockbot_tool_rpc::invoke::{JournaledCall, JournaledState, look_up};
use serde_json::json;

use crate::{
    call_view,
    failure::{Failure, OrExit, Outcome},
    print::outln,
    render,
    settings::Settings,
};

/// Longest shown result, in bytes.
const MAX_SHOWN_BYTES: usize = 16 * 1024;

/// Looks up a call, and prints its state.
pub(crate) async fn run(settings: &Settings, id: &str, json: bool) -> Outcome {
    let id = ToolCallId::new(id).or_exit(exit::USAGE)?;
    let stores = stores(settings)?;
    for (key, url) in &stores {
        let store = rockbot_store_sql::connect(url, Clock::System).await;
        let store = store.map_err(|error| Failure::store(key, url, &error))?;
        let found = look_up(store.as_ref(), &id).await;
        store.close().await;
        if let Some(call) = found.map_err(|error| Failure::store(key, url, &error))? {
            return print(&id, &call, json);
        }
    }
    let searched: Vec<_> = stores.iter().map(|(key, url)| format!("{key} ({url})")).collect();
    Err(Failure {
        code: exit::ANSWERED_WITH_ERROR,
        cause: anyhow::anyhow!(
            "call {} is not in the journal in {}: no handler of that store started it, or its entry has \
             expired; set ROCKBOT_STORE__URL to the store of the handlers",
            render::visible_line(id.as_str()),
            searched.join(" and ")
        ),
    })
}

/// Returns the stores that can have the journal, with their configuration keys: that of the conversations of
/// an embedded agent, and that of handlers.
fn stores(settings: &Settings) -> Result<Vec<(&'static str, StoreUrl)>, Failure> {
    let mut stores = Vec::new();
    if settings.embeds() {
        let url = settings.conversations_url().map_err(Failure::usage)?;
        stores.push(("agent.conversations.store", url));
    }
    stores.push(("store.url", settings.store.parse().map_err(Failure::usage)?));
    stores.retain(|(_, url)| match url {
        StoreUrl::Memory => false,
        // Opening would create the file.
        StoreUrl::Sqlite(file) => file.exists(),
        StoreUrl::Postgres(_) => true,
    });
    if stores.is_empty() {
        return Err(Failure::usage(
            "no journal is kept: set ROCKBOT_STORE__URL to the store of the handlers",
        ));
    }
    Ok(stores)
}

fn print(id: &ToolCallId, call: &JournaledCall, json: bool) -> Outcome {
    if json {
        outln!("{}", render::json(&to_json(id, call)))?;
        return Ok(exit::OK);
    }
    let rows = describe(id, call);
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    outln!("{}", render::table(&["", ""], rows))?;
    if let JournaledState::Ended { reply: Some(reply), .. } = &call.state {
        let text = match reply.as_ref() {
            Ok(response) => &response.content,
            Err(error) => &error.message,
        };
        let shown = &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)];
        outln!("\n{}", call_view::result(shown, (text.len() - shown.len()) as u64))?;
    }
    Ok(exit::OK)
}

fn describe(id: &ToolCallId, call: &JournaledCall) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("call", render::visible_line(id.as_str())),
        ("process", render::visible_line(&call.owner)),
    ];
    match &call.state {
        JournaledState::Running => rows.push(("state", "running".to_owned())),
        JournaledState::Interrupted => rows.push((
            "state",
            render::bad("interrupted: its process died; a redelivery runs it again if its tool is idempotent, and \
                         otherwise fails with outcome_unknown"),
        )),
        JournaledState::Ended { reply, is_confirmed } => {
            rows.extend(reply.as_deref().map_or_else(
                || vec![("state", "ended; its reply is not recorded".to_owned())],
                describe_reply,
            ));
            let confirmed = if *is_confirmed { "confirmed by the broker" } else { "recorded" };
            rows.push(("reply", confirmed.to_owned()));
        }
    }
    rows
}

fn describe_reply(reply: &Result<ToolInvokeResponse, ToolError>) -> Vec<(&'static str, String)> {
    let mut rows = match reply {
        Ok(response) => vec![
            ("tool", render::visible_line(&response.tool_name)),
            (
                "state",
                if response.is_error {
                    render::bad("the tool returned an error, executed: yes")
                } else {
                    render::good("ended, executed: yes")
                },
            ),
            ("result", render::size(response.content.len() as u64)),
        ],
        Err(error) => vec![
            ("tool", render::visible_line(&error.tool_name)),
            ("state", render::bad(&format!("{}, executed: {}", error.code, error.executed))),
        ],
    };
    let stages = reply.as_ref().map_or_else(|error| error.stages, |response| response.stages);
    rows.extend(stages.map(|stages| ("stages", render::stages(&stages))));
    rows
}

fn to_json(id: &ToolCallId, call: &JournaledCall) -> serde_json::Value {
    let mut value = json!({"toolCallId": id, "process": call.owner});
    match &call.state {
        JournaledState::Running => value["state"] = json!("running"),
        JournaledState::Interrupted => value["state"] = json!("interrupted"),
        JournaledState::Ended { reply, is_confirmed } => {
            value["state"] = json!("ended");
            value["replyConfirmed"] = json!(is_confirmed);
            match reply.as_deref() {
                Some(Ok(response)) => value["response"] = json!(response),
                Some(Err(error)) => value["error"] = json!(error),
                None => {}
            }
        }
    }
    value
}
