//! All that an agent remembers.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_memory::{
    WorkingMemory,
    working_memory::{self, working_memory_tools},
};
use rockbot_store::{Store, StoreError, StoreUrl, Sweeper};
use rockbot_tools::{Guide, Outputs, OutputsSection, Tool};

use super::{
    facts::Facts, inventory::Inventory, log::ConversationLog, recall::Recall, rules::Rules,
    section::MemorySection, skills::Skills, timezone::TimeZones,
};
use crate::context::{ContextPart, ContextSource, CurrentDate};

/// How often what has expired is removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Long-term memory, skills and rules, for models.
const GUIDE: Guide = Guide {
    name: "memory",
    summary: "Remembering facts, skills and rules across conversations",
    markdown: include_str!("../../guides/memory.md"),
};

/// Why nothing can be remembered.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The section can't be used.
    #[error("{0}")]
    Section(String),
    /// The store can't be opened.
    #[error("memory.store: {url}: {source}")]
    Store {
        /// Which one, without its password.
        url: String,
        /// Why.
        source: StoreError,
    },
}

/// What the agents of a process remember: working memory, facts, skills, rules, the time zone, and
/// what was said.
///
/// Each agent has its own, and so has each conversation of it in working memory. Agents of other
/// processes on the same store, with the same name, share it.
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
    /// Opens the store that the section names with `connect`; none when memory is off. Needs a Tokio
    /// runtime.
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

    /// Keeps everything in this store, which is closed in the end. Needs a Tokio runtime.
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
            _sweeper: Sweeper::start(store.clone(), SWEEP_EVERY),
            store,
        }
    }

    /// What agents put aside while they work.
    #[must_use]
    pub fn working(&self) -> &WorkingMemory {
        &self.working
    }

    /// What was said, if that is collection.
    #[must_use]
    pub fn log(&self) -> Option<Arc<ConversationLog>> {
        self.log.clone()
    }

    /// Large results in the same store, if the section wants them collection.
    #[must_use]
    pub fn outputs(&self, section: &OutputsSection) -> Option<Arc<Outputs>> {
        section.enabled.then(|| Outputs::new(self.store.clone(), section.clone()))
    }

    /// Its tools. They work for the agent and the conversation of their call.
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

    /// How to use the tools.
    #[must_use]
    pub fn guides(&self) -> Vec<Guide> {
        vec![working_memory::GUIDE, GUIDE]
    }

    /// What a model is told by itself.
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

    /// Finishes what is under way, and gives the store up.
    pub async fn close(&self) {
        // Whoever sweeps it ends with it.
        self.store.close().await;
    }
}

impl fmt::Debug for AgentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentMemory").field("working", &self.working).finish_non_exhaustive()
    }
}
