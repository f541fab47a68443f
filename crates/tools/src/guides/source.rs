//! The guides of an agent: built in, and from sources that are known at run time.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::future::BoxFuture;
use parking_lot::RwLock;

use super::Guide;
use crate::{context::ToolContext, failure::ToolFailure};

/// A guide in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuideEntry {
    /// Name that a model requests it by.
    pub name: String,
    /// Subject, on one line.
    pub summary: String,
}

/// Guides that are known at run time, such as those of tool handlers. Their texts come from outside: a source
/// cleans and bounds them, and quotes those that it returns.
pub trait GuideSource: Send + Sync + 'static {
    /// Returns the guides on tools that the turn of `context` may use.
    fn list(&self, context: &ToolContext) -> Vec<GuideEntry>;

    /// Returns the text of a guide; `None` when [`list`](Self::list) does not contain it.
    ///
    /// # Errors
    /// When the text cannot be fetched.
    ///
    /// # Cancellation
    /// Dropping the future abandons the request.
    fn read<'a>(
        &'a self,
        name: &'a str,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Option<String>, ToolFailure>>;
}

/// The guides of an agent. A built-in guide takes precedence over others of its name, and an earlier source
/// over a later one.
pub struct Guides {
    built_in: BTreeMap<&'static str, Guide>,
    sources: RwLock<Vec<Arc<dyn GuideSource>>>,
}

impl Guides {
    /// Creates the guides with built-in ones.
    #[must_use]
    pub fn new(built_in: impl IntoIterator<Item = Guide>) -> Arc<Self> {
        let built_in = built_in.into_iter().map(|guide| (guide.name, guide)).collect();
        Arc::new(Self { built_in, sources: RwLock::default() })
    }

    /// Adds a source. The tools of an agent are registered before its handlers are known.
    pub fn add(&self, source: Arc<dyn GuideSource>) {
        self.sources.write().push(source);
    }

    /// Returns the guides for a call, ordered by name.
    #[must_use]
    pub fn list(&self, context: &ToolContext) -> Vec<GuideEntry> {
        let mut entries = BTreeMap::new();
        for guide in self.built_in.values() {
            entries.insert(guide.name.to_owned(), guide.summary.to_owned());
        }
        for source in self.sources() {
            for GuideEntry { name, summary } in source.list(context) {
                entries.entry(name).or_insert(summary);
            }
        }
        entries.into_iter().map(|(name, summary)| GuideEntry { name, summary }).collect()
    }

    /// Returns the text of a guide.
    ///
    /// # Errors
    /// [`ToolFailure::Invalid`](ToolFailure) for an unknown name, with those that exist, and the failure of its
    /// source.
    ///
    /// # Cancellation
    /// Dropping the future abandons the request.
    pub async fn read(&self, name: &str, context: &ToolContext) -> Result<String, ToolFailure> {
        if let Some(guide) = self.built_in.get(name) {
            return Ok(guide.markdown.to_owned());
        }
        for source in self.sources() {
            if let Some(text) = source.read(name, context).await? {
                return Ok(text);
            }
        }
        let names: Vec<_> = self.list(context).into_iter().map(|entry| entry.name).collect();
        Err(ToolFailure::invalid(format!("unknown guide; use one of: {}", names.join(", "))))
    }

    fn sources(&self) -> Vec<Arc<dyn GuideSource>> {
        self.sources.read().clone()
    }
}

impl fmt::Debug for Guides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guides")
            .field("built_in", &self.built_in.keys())
            .field("sources", &self.sources.read().len())
            .finish()
    }
}
