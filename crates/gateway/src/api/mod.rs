//! The REST API and the event stream, for people in a browser and for scripts: `/api/v1`.
//!
//! What a request may use is decided twice: the guard checks the right that a route requires, and a handler
//! checks the owner. Other people's conversations do not exist for a person.

mod agents;
mod body;
mod calls;
mod conversations;
mod fleet;
mod inspection;
mod letters;
mod openapi;
mod problem;
mod routes;
mod schedules;
mod schema;
mod stream;
mod tasks;
mod tool_calls;

use std::{sync::Arc, time::Duration};

use rockbot_contracts::SessionId;
use rockbot_tool_rpc::catalog::CatalogSnapshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    calls::{CallBoard, Viewing},
    conversations::{Conversation, Hub, Owner, Record, Records, Turns},
    fleet::FleetReader,
    letters::LetterReader,
    problem::Problem,
    stream::StreamLimits,
};
use crate::{face::Route, identity::Identity, parts::GatewayParts};

pub use self::openapi::description;

/// Largest number of agents in a response.
const MAX_AGENTS: usize = 64;

/// The state of the API.
pub(crate) struct Api {
    parts: GatewayParts,
    records: Records,
    hub: Arc<Hub>,
    turns: Turns,
    /// `None` if calls are not watched.
    calls: Option<Arc<CallBoard>>,
    /// Keeps the watch of calls running without viewers.
    _viewing: Option<Viewing>,
    fleet: FleetReader,
    /// `None` if dead letters are not read.
    letters: Option<LetterReader>,
    streams: StreamLimits,
    /// Cancelled when the server stops, or the API is dropped.
    closing: CancellationToken,
    _stop: DropGuard,
}

/// Returns the routes of the API. Streams end when `closing` is cancelled.
pub(crate) fn routes(parts: &GatewayParts, closing: &CancellationToken) -> Vec<Route> {
    routes::routes(&Arc::new(Api::new(parts, closing)))
}

impl Api {
    fn new(parts: &GatewayParts, closing: &CancellationToken) -> Self {
        let closing = closing.child_token();
        let records = Records::new(parts.store.clone());
        let hub = Arc::new(Hub::new());
        let turns = Turns::new(parts.client.clone(), hub.clone(), records.clone(), closing.clone());
        let calls =
            parts.watch.clone().map(|watch| Arc::new(CallBoard::new(watch, parts.bus.clone())));
        let viewing = calls.as_ref().filter(|_| parts.watches_from_start).map(|calls| calls.view());
        Self {
            _viewing: viewing,
            parts: parts.clone(),
            records,
            hub,
            turns,
            fleet: FleetReader::new(parts, calls.clone()),
            letters: LetterReader::new(parts),
            calls,
            streams: StreamLimits::default(),
            _stop: closing.clone().drop_guard(),
            closing,
        }
    }

    /// Returns a conversation of the identity.
    async fn conversation(
        &self,
        identity: &Identity,
        id: &str,
    ) -> Result<(Conversation, Record), Problem> {
        let owner = Owner::new(&identity.subject);
        let found = self.stored(owner, id).await?;
        let may_use = |agent: &str| self.parts.agent_for(identity, agent).is_some();
        found.filter(|(found, _)| may_use(found.agent.as_str())).ok_or_else(no_conversation)
    }

    /// Returns the conversation that a share shows.
    async fn shared(&self, share: &str) -> Result<(Conversation, Record), Problem> {
        let ended = || Problem::not_found("no such share; it may have been ended");
        let shared = self.records.shared(share).await?.ok_or_else(ended)?;
        let found = self.stored(shared.owner(), shared.conversation.as_str()).await?;
        let (conversation, record) = found.ok_or_else(ended)?;
        // A share that was ended while its entry was being removed.
        let is_current = record.share.as_ref().is_some_and(|current| current.id == share);
        if is_current { Ok((conversation, record)) } else { Err(ended()) }
    }

    async fn stored(
        &self,
        owner: Owner,
        id: &str,
    ) -> Result<Option<(Conversation, Record)>, Problem> {
        let Ok(session) = SessionId::new(id) else { return Ok(None) };
        // Longer ids are not made by this gateway, and may not fit into a key.
        if id.len() > 64 {
            return Ok(None);
        }
        let Some(record) = self.records.get(&owner, &session).await? else { return Ok(None) };
        let agent = record.agent.clone();
        Ok(Some((Conversation { owner, agent, session }, record)))
    }

    /// Returns the handlers that announced themselves, as far as calls are watched.
    async fn catalog(&self) -> CatalogSnapshot {
        match &self.calls {
            Some(calls) => calls.view().catalog(Duration::ZERO).await,
            None => CatalogSnapshot::default(),
        }
    }

    fn calls(&self) -> Result<&Arc<CallBoard>, Problem> {
        self.calls.as_ref().ok_or_else(|| Problem::not_connected("gateway.watch.url"))
    }

    fn letters(&self) -> Result<&LetterReader, Problem> {
        self.letters.as_ref().ok_or_else(|| Problem::not_connected("gateway.letters.url"))
    }
}

fn no_conversation() -> Problem {
    Problem::not_found("no such conversation; list them with GET /api/v1/conversations")
}
