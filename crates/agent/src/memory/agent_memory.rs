//! The whole memory of the agents of a process.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_memory::{
    WorkingMemory,
    working_memory::{self, working_memory_tools},
};
use rockbot_store::{Store, StoreError, StoreUrl, Sweeper};
use rockbot_tools::{FixedTools, Guide, Outputs, OutputsSection, Tool, ToolProvider, ToolSource};

use super::{
    facts::Facts, inventory::Inventory, log::ConversationLog, recall::Recall, rules::Rules,
    section::MemorySection, skills::Skills, timezone::TimeZones,
};
use crate::context::{ContextPart, ContextSource, CurrentDate};

/// Interval at which expired entries are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Guide to long-term memory, skills and rules, for models.
const GUIDE: Guide = Guide {
    name: "memory",
    summary: "Remembering facts, skills and rules across conversations",
    markdown: include_str!("../../guides/memory.md"),
};

/// Why the memory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The configuration is invalid.
    #[error("{0}")]
    Section(String),
    /// The store cannot be opened.
    #[error("memory.store: {url}: {source}")]
    Store {
        /// URL of the store, without its password.
        url: String,
        /// The error of the store.
        source: StoreError,
    },
}

/// The memory of the agents of a process: working memory, facts, skills, rules, the time zone and the
/// history of conversations.
///
/// Every agent has its own memory, and every conversation its own working memory. Processes that run an
/// agent of the same name on the same store share its memory.
pub struct AgentMemory {
    store: Arc<dyn Store>,
    working: WorkingMemory,
    facts: Arc<Facts>,
    skills: Arc<Skills>,
    rules: Arc<Rules>,
    zones: Arc<TimeZones>,
    log: Option<Arc<ConversationLog>>,
    _sweeper: Sweeper,
}

impl AgentMemory {
    /// Opens the configured store with `connect`. Returns `None` if memory is off. Needs a Tokio runtime.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub async fn open<F>(
        section: &MemorySection,
        connect: impl FnOnce(StoreUrl) -> F,
    ) -> Result<Option<Self>, MemoryError>
    where
        F: Future<Output = Result<Arc<dyn Store>, StoreError>>,
    {
        let Some(url) = section.url().map_err(MemoryError::Section)? else { return Ok(None) };
        let name = url.to_string();
        let store = connect(url).await;
        let store = store.map_err(|source| MemoryError::Store { url: name, source })?;
        Ok(Some(Self::new(store, section)))
    }

    /// Uses this store and closes it in [`close`](Self::close). Needs a Tokio runtime.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, section: &MemorySection) -> Self {
        let log = section.conversations();
        Self {
            working: WorkingMemory::with_limits(store.clone(), section.working()),
            facts: Facts::new(store.clone()),
            skills: Skills::new(store.clone()),
            rules: Rules::new(store.clone()),
            zones: TimeZones::new(store.clone()),
            log: log.map(|keep| Arc::new(ConversationLog::new(store.clone(), keep))),
            _sweeper: Sweeper::start(store.clone(), SWEEP_INTERVAL),
            store,
        }
    }

    /// Returns the working memory.
    #[must_use]
    pub fn working(&self) -> &WorkingMemory {
        &self.working
    }

    /// Returns the history of conversations, if it is stored.
    #[must_use]
    pub fn log(&self) -> Option<Arc<ConversationLog>> {
        self.log.clone()
    }

    /// Returns storage for large results in the same store, if the section enables it.
    #[must_use]
    pub fn outputs(&self, section: &OutputsSection) -> Option<Arc<Outputs>> {
        section.enabled.then(|| Outputs::new(self.store.clone(), section.clone()))
    }

    /// Returns the tools. Each call uses the memory of its agent and conversation.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = working_memory_tools(&self.working);
        tools.extend(self.facts.tools());
        tools.extend(self.skills.tools());
        tools.extend(self.rules.tools());
        tools.extend(self.zones.tools());
        tools.extend(self.log.iter().flat_map(ConversationLog::tools));
        tools
    }

    /// Returns the time zones of the agents.
    pub(crate) fn zones(&self) -> Arc<TimeZones> {
        self.zones.clone()
    }

    /// Returns the guides to the tools.
    #[must_use]
    pub fn guides(&self) -> Vec<Guide> {
        vec![working_memory::GUIDE, GUIDE]
    }

    /// Returns the provider of the tools.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn ToolProvider> {
        let tools = FixedTools::new(ToolSource::Memory, self.tools());
        Arc::new(tools.with_guides(self.guides()))
    }

    /// Returns the context sources.
    #[must_use]
    pub fn sources(&self) -> Vec<Arc<dyn ContextSource>> {
        vec![
            Arc::new(CurrentDate::new(Some(self.zones.clone()))),
            self.rules.clone(),
            Recall::new(ContextPart::Memories, self.facts.collection.clone()),
            Recall::new(ContextPart::Skills, self.skills.collection.clone()),
            Arc::new(Inventory(self.working.clone())),
        ]
    }

    /// Finishes pending operations and closes the store.
    pub async fn close(&self) {
        // This also stops the sweeper.
        self.store.close().await;
    }
}

impl fmt::Debug for AgentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentMemory").field("working", &self.working).finish_non_exhaustive()
    }
}
