//! Access to dead letters, one operation at a time.

use std::{sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_contracts::{AgentName, QueueName, ToolHints};
use rockbot_monitor::{
    letters::{LetterError, Purged, Replayed, Selection, SenderCheck, inspect, purge, replay},
    queues::{inspect_queues, parse_queue_name},
};
use rockbot_tool_rpc::catalog::CatalogSnapshot;
use tokio::sync::Mutex;

use super::view::{LetterDetails, LetterPage, LetterQueues, LetterView};
use crate::{
    api::{
        inspection::{Inspection, work_queues},
        problem::Problem,
    },
    parts::GatewayParts,
};

/// Time for which the numbers of dead letters count as current.
const FRESH: Duration = Duration::from_secs(10);

/// Reads, replays and purges dead letters. Operations follow each other: while one holds letters, another would
/// not find them.
pub(crate) struct LetterReader {
    bus: Arc<dyn Bus>,
    namespace: Arc<str>,
    user: Option<Arc<str>>,
    agents: Arc<[AgentName]>,
    turn: Mutex<()>,
    queues: Inspection<LetterQueues>,
}

impl LetterReader {
    /// Returns `None` without the connection for dead letters.
    pub(crate) fn new(parts: &GatewayParts) -> Option<Self> {
        Some(Self {
            bus: parts.letters.clone()?,
            namespace: parts.namespace.clone(),
            user: parts.letters_user.clone(),
            agents: parts.agents.clone(),
            turn: Mutex::default(),
            queues: Inspection::new(FRESH),
        })
    }

    /// Returns the numbers of dead letters, counted at most once in 10 s.
    pub(crate) async fn queues(
        &self,
        catalog: &CatalogSnapshot,
    ) -> Result<Arc<LetterQueues>, Problem> {
        self.queues.current(self.count(catalog)).await
    }

    async fn count(&self, catalog: &CatalogSnapshot) -> Result<LetterQueues, Problem> {
        let mut names = work_queues(catalog, &self.agents);
        // A quarantine queue has the dead letters of its work queue.
        names.retain(|name| self.parse(name.as_str()).is_ok_and(|work| work == *name));
        let (_, queues) = inspect_queues(self.bus.as_ref(), &names).await?;
        Ok(LetterQueues { queues: queues.iter().map(Into::into).collect() })
    }

    /// Parses the name of a work queue.
    pub(crate) fn parse(&self, name: &str) -> Result<QueueName, Problem> {
        parse_queue_name(name, &self.namespace)
            .map_err(|_| Problem::invalid("the queue must be the name of a work queue"))
    }

    /// Returns the oldest letters of a queue.
    pub(crate) async fn page(
        &self,
        queue: &QueueName,
        limit: u32,
        catalog: &CatalogSnapshot,
    ) -> Result<LetterPage, LetterError> {
        let _turn = self.turn.lock().await;
        let found = inspect(self.bus.as_ref(), queue, Selection::Oldest(limit)).await?;
        let senders = self.senders(queue);
        let view = |letter| LetterView::new(letter, &senders, |tool| hints_of(catalog, tool));
        let letters = found.letters.iter().map(view).collect();
        Ok(LetterPage { queue: queue.to_string(), waiting: found.waiting, letters })
    }

    /// Returns one letter with its body.
    pub(crate) async fn find(
        &self,
        queue: &QueueName,
        id: &str,
        catalog: &CatalogSnapshot,
    ) -> Result<LetterDetails, LetterError> {
        let _turn = self.turn.lock().await;
        let ids = [id.to_owned()];
        let found = inspect(self.bus.as_ref(), queue, Selection::ByIds(&ids)).await?;
        let senders = self.senders(queue);
        let letter = found.letters.first().ok_or_else(|| LetterError::NotFound {
            id: id.to_owned(),
            searched: found.waiting,
            queue: queue.clone(),
        })?;
        let view = LetterView::new(letter, &senders, |tool| hints_of(catalog, tool));
        Ok(LetterDetails::new(view, &letter.body))
    }

    /// Sends letters to their work queue again.
    pub(crate) async fn replay(
        &self,
        queue: &QueueName,
        ids: &[String],
        dry_run: bool,
    ) -> Result<Replayed, LetterError> {
        let _turn = self.turn.lock().await;
        let senders = self.senders(queue);
        let selection = Selection::ByIds(ids);
        let replayed = replay(self.bus.as_ref(), queue, Some(&senders), selection, dry_run).await;
        self.forget_numbers(dry_run).await;
        replayed
    }

    /// Deletes letters.
    pub(crate) async fn purge(
        &self,
        queue: &QueueName,
        ids: &[String],
        dry_run: bool,
    ) -> Result<Purged, LetterError> {
        let _turn = self.turn.lock().await;
        let purged = purge(self.bus.as_ref(), queue, Selection::ByIds(ids), dry_run).await;
        self.forget_numbers(dry_run).await;
        purged
    }

    fn senders(&self, queue: &QueueName) -> SenderCheck {
        SenderCheck::new(queue, &self.namespace, self.user.as_deref())
    }

    async fn forget_numbers(&self, dry_run: bool) {
        if !dry_run {
            self.queues.discard().await;
        }
    }
}

/// Returns the hints of a tool, as the handlers of the pool that owns its name announce them.
fn hints_of(catalog: &CatalogSnapshot, tool: &str) -> Option<ToolHints> {
    let owner = catalog.owner(tool)?;
    let mut handlers = catalog.handlers().filter(|handler| handler.pool == *owner);
    handlers.find_map(|handler| {
        handler.tools.iter().find(|known| known.name == tool).map(|known| known.hints)
    })
}
