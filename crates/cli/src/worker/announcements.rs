//! Announcements of the workers of a pool, and checks of them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Publication};
use rockbot_contracts::{
    Envelope, InstanceId, ProviderInstructions, QueueSpec, RoutingKey, ToolCatalog,
    ToolCatalogRefresh, ToolGuide, ToolRegistration,
    json::Limits,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use rockbot_tools::{ArgumentSchema, registry::MAX_DEFINITION_BYTES};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    check::{Problem, Verdict, failed, skipped},
    messages::{Messages, Received},
};
use crate::render;

/// Period of announcements, with some tolerance.
const HEARTBEAT: Duration = Duration::from_secs(12);

/// Time for an announcement that was requested.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// Announcements of one pool.
pub(super) struct Announcements {
    bus: Arc<dyn Bus>,
    key: RoutingKey,
    messages: Messages,
}

/// An announcement: as it was sent, and decoded.
#[derive(Debug, Clone)]
pub(super) struct Announcement {
    pub(super) catalog: ToolCatalog,
    raw: Value,
    user: Option<Arc<str>>,
    at: Instant,
}

impl Announcements {
    /// Starts to collect the announcements of the pool with the request key `key`.
    pub(super) async fn collect(
        bus: Arc<dyn Bus>,
        key: RoutingKey,
        instance: &InstanceId,
    ) -> Result<Self, ConsumeError> {
        let queue = QueueSpec::exclusive(&tool_catalog_announce(), instance);
        let messages = Messages::collect(bus.as_ref(), queue).await?;
        Ok(Self { bus, key, messages })
    }

    /// Requests announcements, and waits for one of the pool with tools until the next heartbeat is due.
    pub(super) async fn first(&self) -> Option<Announcement> {
        // A lost request shows in the check of it.
        let _ = self.request().await;
        self.wait_for(HEARTBEAT, |all| all.into_iter().find(Announcement::has_tools)).await
    }

    async fn request(&self) -> Result<(), Problem> {
        let envelope = Envelope::from_payload(&ToolCatalogRefresh {});
        let publication = Publication::announcement(tool_catalog_refresh(), envelope);
        let published = self.bus.publish(publication).await;
        published.map_err(|error| Problem::Failed(error.to_string()))
    }

    /// Waits until `pick` returns a value for the announcements so far, at most `limit`.
    pub(super) async fn wait_for<T>(
        &self,
        limit: Duration,
        mut pick: impl FnMut(Vec<Announcement>) -> Option<T>,
    ) -> Option<T> {
        self.messages.wait_for(limit, |messages| pick(self.of_pool(messages))).await
    }

    /// Returns the instances that have announced tools and not withdrawn them.
    pub(super) fn instances(&self) -> BTreeSet<InstanceId> {
        let mut instances = BTreeSet::new();
        for announcement in self.of_pool(&self.messages.so_far()) {
            let has_tools = announcement.has_tools();
            let instance = announcement.catalog.instance;
            if has_tools {
                instances.insert(instance);
            } else {
                instances.remove(&instance);
            }
        }
        instances
    }

    /// Returns the number of announcements without tools, which workers send when they stop.
    pub(super) fn withdrawals(&self) -> usize {
        let all = self.of_pool(&self.messages.so_far());
        all.iter().filter(|announcement| !announcement.has_tools()).count()
    }

    fn of_pool(&self, messages: &[Received]) -> Vec<Announcement> {
        messages.iter().filter_map(|message| self.decode(message)).collect()
    }

    fn decode(&self, message: &Received) -> Option<Announcement> {
        let envelope = &message.envelope;
        let raw: Value = serde_json::from_slice(&envelope.body).ok()?;
        if raw["invokeKey"].as_str() != Some(self.key.as_str()) {
            return None;
        }
        let catalog = envelope.decode(Limits::default()).ok()?;
        Some(Announcement { catalog, raw, user: envelope.user_id.clone(), at: message.at })
    }

    /// Checks that a request for announcements is answered by every known instance.
    pub(super) async fn refresh(&self) -> Verdict {
        let (known, since) = (self.instances(), Instant::now());
        self.request().await?;
        let missing = |all: Vec<Announcement>| {
            let mut missing = known.clone();
            let later = all.iter().filter(|announcement| announcement.at > since);
            for announcement in later.filter(|announcement| announcement.has_tools()) {
                missing.remove(&announcement.catalog.instance);
            }
            missing
        };
        let answered = |all| missing(all).is_empty().then_some(());
        match self.wait_for(REFRESH_TIMEOUT, answered).await {
            Some(()) if known.is_empty() => failed("no instance announces tools any more"),
            Some(()) => Ok(format!("{} of {} instances", known.len(), known.len())),
            None => failed("no announcement with tools within 3 s of a request for it"),
        }
    }

    /// Checks that an instance announces its tools at least every ten seconds, also without a request.
    pub(super) async fn heartbeat(&self, instance: &InstanceId) -> Verdict {
        let since = Instant::now();
        let next = |all: Vec<Announcement>| {
            let own = all.into_iter().filter(|one| one.catalog.instance == *instance);
            let mut own = own.filter(Announcement::has_tools);
            // An announcement at once may still be the reply to a request.
            own.find(|announcement| announcement.at > since + Duration::from_secs(1))
        };
        match self.wait_for(HEARTBEAT, next).await {
            Some(announcement) => Ok(format!("after {} s", (announcement.at - since).as_secs())),
            None => failed("no announcement with tools within 12 s; repeat it every 10 s"),
        }
    }

    /// Checks that no announcement of the pool is unreadable.
    pub(super) fn readable(&self) -> Verdict {
        let messages = self.messages.so_far();
        for message in messages {
            let Ok(raw) = serde_json::from_slice::<Value>(&message.envelope.body) else { continue };
            if raw["invokeKey"].as_str() != Some(self.key.as_str()) {
                continue;
            }
            if let Err(error) = message.envelope.decode::<ToolCatalog>(Limits::default()) {
                return failed(error);
            }
        }
        Ok("ToolCatalog".to_owned())
    }
}

impl Announcement {
    /// Returns whether it contains a tool. A worker withdraws its tools with one that contains none.
    pub(super) fn has_tools(&self) -> bool {
        !self.catalog.tools.is_empty()
    }

    /// Checks name, instance and names of tools.
    pub(super) fn names(&self) -> Verdict {
        let ToolCatalog { handler, tools, fingerprint, .. } = &self.catalog;
        if handler.is_empty() || fingerprint.is_empty() {
            return failed("handler and fingerprint must not be empty");
        }
        let mut names = BTreeSet::new();
        for ToolRegistration { name, .. } in tools {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if name.is_empty() || name.len() > 128 || !name.chars().all(is_valid) {
                return failed(format!(
                    "the name {name:?} is not 1 to 128 letters, digits, `_` and `-`"
                ));
            }
            if !names.insert(name) {
                return failed(format!("{name} is announced twice"));
            }
        }
        Ok(render::count(tools.len(), "tool"))
    }

    /// Checks that definitions are usable and not too large.
    pub(super) fn schemas(&self) -> Verdict {
        for tool in &self.catalog.tools {
            if let Err(error) = ArgumentSchema::compile(&tool.parameters) {
                return failed(format!("{}: {error}", tool.name));
            }
            let bytes = tool.model_description().len() + tool.parameters.to_string().len();
            if bytes > MAX_DEFINITION_BYTES {
                return failed(format!("{}: {bytes} bytes, over the limit of 64 KiB", tool.name));
            }
            if tool.description.trim().is_empty() {
                return failed(format!("{}: the description is empty", tool.name));
            }
        }
        Ok("usable".to_owned())
    }

    /// Checks that hints do not contradict each other.
    pub(super) fn hints(&self) -> Verdict {
        let mut absent = 0;
        for (tool, raw) in
            self.catalog.tools.iter().zip(self.raw["tools"].as_array().into_iter().flatten())
        {
            let hints = &raw["hints"];
            absent += usize::from(hints.is_null());
            if tool.hints.read_only && hints["destructive"] == true {
                return failed(format!("{}: it cannot be readOnly and destructive", tool.name));
            }
        }
        Ok(match absent {
            0 => "present".to_owned(),
            _ => format!("{absent} tools without hints count as destructive"),
        })
    }

    /// Checks the instructions for models, which are optional.
    pub(super) fn instructions(&self) -> Verdict {
        let (max_chars, max_entries) =
            (ProviderInstructions::MAX_TEXT, ProviderInstructions::MAX_ENTRIES);
        let Some(entries) = self.raw["instructions"].as_array() else {
            return Ok("none; they are optional".to_owned());
        };
        if entries.len() > max_entries {
            return failed(format!("{} entries, at most {max_entries} are read", entries.len()));
        }
        for entry in entries {
            let (Some(text), Some(source)) = (entry["text"].as_str(), entry["source"].as_str())
            else {
                return failed("an entry lacks source or text");
            };
            if text.chars().count() > max_chars {
                return failed(format!("{source}: over {max_chars} characters"));
            }
        }
        Ok(format!("{} entries", entries.len()))
    }

    /// Checks the guides for models, which are optional.
    pub(super) fn guides(&self) -> Verdict {
        let Some(entries) = self.raw["guides"].as_array() else {
            return Ok("none; they are optional".to_owned());
        };
        if entries.len() > ToolGuide::MAX_ENTRIES {
            let max = ToolGuide::MAX_ENTRIES;
            return failed(format!("{} guides, at most {max} are read", entries.len()));
        }
        let mut names = BTreeSet::new();
        for guide in &self.catalog.guides {
            let ToolGuide { source, name, summary, markdown } = guide;
            if !guide.is_valid_name() {
                return failed(format!(
                    "the name {name:?} is not 1 to 64 letters, digits, `_` and `-`"
                ));
            }
            if !names.insert(name) {
                return failed(format!("the guide {name} is announced twice"));
            }
            if !self.catalog.tools.iter().any(|tool| tool.source == *source) {
                return failed(format!("{name}: no tool has the source {source}"));
            }
            for (text, max) in
                [(summary, ToolGuide::MAX_SUMMARY), (markdown, ToolGuide::MAX_MARKDOWN)]
            {
                if text.trim().is_empty() || text.chars().count() > max {
                    return failed(format!("{name}: a text is empty or has over {max} characters"));
                }
            }
        }
        Ok(render::count(entries.len(), "guide"))
    }

    /// Checks that the worker is the user of its pool, where the broker knows the users of a fleet.
    pub(super) fn user(&self, expected: Option<&str>) -> Verdict {
        let Some(expected) = expected else {
            return skipped("the users of this broker are not those of a fleet");
        };
        match self.user.as_deref() {
            Some(user) if user == expected => Ok(user.to_owned()),
            Some(user) => failed(format!("announced by {user} instead of {expected}")),
            None => failed(format!("no user id; set it to {expected}")),
        }
    }
}
