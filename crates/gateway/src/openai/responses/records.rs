//! Responses of the last 30 days in the gateway's store. Messages and answers are in the agent's store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_store::{DocumentStore, Expected, PutOutcome, Store};
use serde::{Deserialize, Serialize};

use super::super::error::ApiError;
use crate::{id_scope::IdScope, identity::Identity, store_limit::within_limit};

/// Time for which a response is found: as long as agents keep conversations by default.
const TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct ResponseRecord {
    pub(super) agent: AgentName,
    /// Id of the sender and the person on whose behalf it sent the request.
    pub(super) sender: String,
    pub(super) session: SessionId,
    pub(super) created_s: u64,
    #[serde(default)]
    pub(super) previous: Option<String>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

/// The recorded responses. Clones share the store.
#[derive(Debug, Clone)]
pub(in super::super) struct ResponseRecords(Arc<DocumentStore<ResponseRecord>>);

impl ResponseRecords {
    pub(in super::super) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(DocumentStore::new(store, ["gateway", "openai-responses"])))
    }

    /// Records a response, and returns it; the recorded one, if there is one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn begin(
        &self,
        identity: &Identity,
        id: &str,
        new: ResponseRecord,
    ) -> Result<ResponseRecord, ApiError> {
        let name = [name(identity, id)];
        match within_limit(self.0.put(&name, &new, Some(TTL), Expected::Absent), ApiError::store)
            .await?
        {
            PutOutcome::Conflict(Some(found)) => Ok(found.value),
            PutOutcome::Done(_) | PutOutcome::Conflict(None) => Ok(new),
        }
    }

    /// Returns a response of the identity; `None` if it has no such response.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn get(
        &self,
        identity: &Identity,
        id: &str,
    ) -> Result<Option<ResponseRecord>, ApiError> {
        let found = within_limit(self.0.get(&[name(identity, id)]), ApiError::store).await?;
        Ok(found.map(|found| found.value))
    }

    /// Removes a response, and returns whether there was one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn remove(&self, identity: &Identity, id: &str) -> Result<bool, ApiError> {
        within_limit(self.0.remove(&[name(identity, id)], Expected::Anything), ApiError::store)
            .await
    }
}

/// Returns the name of a record. Identities do not share names.
fn name(identity: &Identity, id: &str) -> String {
    IdScope::new([identity.subject.as_bytes()]).id("response", [id.as_bytes()])
}
