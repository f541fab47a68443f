//! Look-up of a call in a journal, for people.

use rockbot_contracts::{Message, ToolCallId, ToolError, ToolInvokeResponse};
use rockbot_store::{Store, StoreError};

use super::{
    journal::{Record, all_replied_key, call_key},
    liveness::Liveness,
};

/// A call as a journal has it.
#[derive(Debug, Clone, PartialEq)]
pub struct JournaledCall {
    /// Incarnation of the process that started it: the instance, and a random part.
    pub owner: String,
    /// State of the call.
    pub state: JournaledState,
}

/// State of a call in a journal.
#[derive(Debug, Clone, PartialEq)]
pub enum JournaledState {
    /// It runs, or its handler is waiting for permission to run it.
    Running,
    /// Its handler died. A redelivery runs it again if its tool is idempotent, and otherwise fails with
    /// `outcome_unknown`.
    Interrupted,
    /// It ended with this reply, which redeliveries get too.
    Ended {
        /// The reply; `None` if it was too large to record, or if this build cannot read it.
        reply: Option<Box<Result<ToolInvokeResponse, ToolError>>>,
        /// Set if the owner recorded that the broker confirmed all its replies.
        is_confirmed: bool,
    },
}

/// Looks up a call. Returns `None` if the journal does not have it: it was not started by a handler of this
/// store, or its entry has expired.
///
/// # Errors
/// When the store cannot be read, or the entry is not one of a journal.
pub async fn look_up(
    store: &dyn Store,
    id: &ToolCallId,
) -> Result<Option<JournaledCall>, StoreError> {
    let Some(entry) = store.get(&call_key(id)?).await? else { return Ok(None) };
    let record: Record = serde_json::from_slice(&entry.value)
        .map_err(|error| StoreError::Unusable { reason: error.to_string() })?;
    let Record { owner, finished, .. } = record;
    let state = match finished {
        Some(finished) => {
            let json = finished.reply.as_deref().map(serde_json::value::RawValue::get);
            let reply = json.and_then(|json| match finished.r#type.as_str() {
                ToolInvokeResponse::TYPE => serde_json::from_str(json).ok().map(Ok),
                ToolError::TYPE => serde_json::from_str(json).ok().map(Err),
                _ => None,
            });
            let is_confirmed = store.get(&all_replied_key(&owner)?).await?.is_some();
            JournaledState::Ended { reply: reply.map(Box::new), is_confirmed }
        }
        None if Liveness::is_alive(store, &owner).await? => JournaledState::Running,
        None => JournaledState::Interrupted,
    };
    Ok(Some(JournaledCall { owner, state }))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::Executed;
    use rockbot_store::{Clock, MemoryStore, Write};
    use serde_json::json;

    use super::*;

    async fn record(store: &MemoryStore, id: &ToolCallId, finished: Option<serde_json::Value>) {
        let mut record = json!({"fingerprint": "f", "owner": "handler-1"});
        if let Some(finished) = finished {
            record["ended"] = finished;
        }
        store.write(Write::new(call_key(id).unwrap(), record.to_string())).await.unwrap();
    }

    #[tokio::test]
    async fn states_of_a_call_are_told_apart() {
        let store = MemoryStore::new(Clock::System);
        let id = ToolCallId::generate();
        assert_eq!(look_up(&store, &id).await.unwrap(), None);
        record(&store, &id, None).await;
        let call = look_up(&store, &id).await.unwrap().unwrap();
        assert_eq!((call.owner.as_str(), call.state), ("handler-1", JournaledState::Interrupted));
        let error = json!({
            "toolCallId": id, "toolName": "bash", "code": "timeout", "message": "late",
            "executed": "yes",
        });
        record(&store, &id, Some(json!({"type": "ToolError", "answer": error}))).await;
        let JournaledState::Ended { reply: Some(reply), is_confirmed: false } =
            look_up(&store, &id).await.unwrap().unwrap().state
        else {
            panic!("not ended");
        };
        assert_eq!(reply.unwrap_err().executed, Executed::Yes);
        record(&store, &id, Some(json!({"type": "ToolInvokeResponse", "answer": null}))).await;
        let state = look_up(&store, &id).await.unwrap().unwrap().state;
        assert_eq!(state, JournaledState::Ended { reply: None, is_confirmed: false });
    }
}
