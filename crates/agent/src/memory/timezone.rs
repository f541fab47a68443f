//! The time zone of the user.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::tz::TimeZone;
use rockbot_contracts::AgentName;
use rockbot_store::{DocumentError, DocumentStore, Expected, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolResult, ToolSource};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::debug;

use crate::{
    builtin_tool::{BuiltinDefinition, BuiltinTool, NON_DESTRUCTIVE, parse_arguments},
    context::TimeZoneSource,
};

/// Name of the setting.
const NAME: &str = "timezone";

/// The time zones that were set for agents.
pub(crate) struct TimeZones(Arc<dyn Store>);

#[derive(Debug, Deserialize)]
struct Arguments {
    timezone: String,
}

impl TimeZones {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self(store))
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let definition = BuiltinDefinition {
            name: "set_timezone",
            description: "Set the time zone of the user, from the next turn on.",
            arguments: json!({"timezone": {"type": "string", "minLength": 1, "maxLength": 64,
                "description": "A name of the IANA database, such as Europe/Berlin."}}),
            required: &["timezone"],
            source: ToolSource::Memory,
            hints: NON_DESTRUCTIVE,
        };
        vec![BuiltinTool::create(self, definition, |zones, arguments, context| {
            Box::pin(zones.set(arguments, context))
        })]
    }

    fn shelf(&self, agent: &AgentName) -> DocumentStore<String> {
        DocumentStore::new(self.0.clone(), ["settings", agent.as_str()])
    }

    /// Returns the time zone of an agent, if one is set and known.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn find(&self, agent: &AgentName) -> Result<Option<TimeZone>, DocumentError> {
        let found = self.shelf(agent).get(&[NAME]).await?;
        Ok(found.and_then(|name| TimeZone::get(&name.value).ok()))
    }

    async fn set(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { timezone } = parse_arguments(arguments)?;
        let zone = TimeZone::get(&timezone).map_err(|_| {
            ToolFailure::invalid(
                "unknown time zone; give a name of the IANA database, such as Europe/Berlin, \
                 America/New_York or UTC",
            )
        })?;
        let name = zone.iana_name().unwrap_or("UTC").to_owned();
        self.shelf(&context.agent).put(&[NAME], &name, None, Expected::Anything).await?;
        Ok(ToolResult::text(format!("The time zone is {name}.")))
    }
}

impl TimeZoneSource for TimeZones {
    fn zone<'a>(&'a self, agent: &'a AgentName) -> BoxFuture<'a, Option<TimeZone>> {
        Box::pin(async move {
            self.find(agent).await.unwrap_or_else(|error| {
                debug!(%error, "time zone unavailable");
                None
            })
        })
    }
}
