//! Whether the definitions of tools are trusted, asked for a whole list.

use std::time::Duration;

use rockbot_contracts::ToolErrorCode;
use rockbot_tools::{ToolPins, layers::pin, registry::RegisteredTool};
use tokio::time::{Instant, timeout_at};

/// How long the pins of a whole list may take. What is not known then is not offered.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the pins, tool by tool. A store that does not answer is not asked again for every tool.
pub(super) struct Trust<'a> {
    pins: Option<&'a ToolPins>,
    until: Instant,
    is_out_of_reach: bool,
}

impl<'a> Trust<'a> {
    /// Everything is trusted without pins.
    pub(super) fn by(pins: Option<&'a ToolPins>) -> Self {
        Self { pins, until: Instant::now() + PATIENCE, is_out_of_reach: false }
    }

    /// Whether the tool may be offered.
    pub(super) async fn has(&mut self, tool: &RegisteredTool) -> bool {
        let Some(pins) = self.pins.filter(|_| tool.tool().is_announced()) else { return true };
        if self.is_out_of_reach {
            return false;
        }
        match timeout_at(self.until, pin::check(pins, tool)).await {
            Ok(Ok(())) => true,
            Ok(Err(failure)) => {
                self.is_out_of_reach = failure.code() == ToolErrorCode::Unavailable;
                false
            }
            Err(_) => {
                self.is_out_of_reach = true;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use rockbot_contracts::{AgentName, ToolRegistration};
    use rockbot_store::{
        Entry, Expected, Key, Prefix, Store, StoreError, Timestamp, Write, Written,
    };
    use rockbot_tools::{
        Tool, ToolContext, ToolFailure, ToolHints, ToolRegistry, ToolResult, ToolSource,
    };
    use serde_json::{Value, json};

    use super::*;

    /// A store that never answers.
    struct Hangs;

    impl Store for Hangs {
        fn get<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
            Box::pin(std::future::pending())
        }

        fn write(&self, _: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
            Box::pin(std::future::pending())
        }

        fn remove<'a>(
            &'a self,
            _: &'a Key,
            _: Expected,
        ) -> BoxFuture<'a, Result<bool, StoreError>> {
            Box::pin(std::future::pending())
        }

        fn list<'a>(
            &'a self,
            _: &'a Prefix,
            _: Option<&'a Key>,
            _: usize,
        ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
            Box::pin(std::future::pending())
        }

        fn sweep(&self, _: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
            Box::pin(std::future::pending())
        }

        fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
            Box::pin(std::future::pending())
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    /// A tool that some handler announced.
    struct Announced(ToolRegistration);

    impl Tool for Announced {
        fn registration(&self) -> &ToolRegistration {
            &self.0
        }

        fn call<'a>(
            &'a self,
            _: Value,
            _: &'a ToolContext,
        ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
            Box::pin(std::future::pending())
        }

        fn is_announced(&self) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_holds_a_list_up_once() {
        let registry = ToolRegistry::new();
        for number in 0..60 {
            let registration = ToolRegistration {
                name: format!("tool_{number}"),
                label: None,
                description: "Does something.".to_owned(),
                tool_description: None,
                parameters: json!({"type": "object"}),
                source: ToolSource::Files,
                hints: ToolHints::default(),
                timeout_ms: None,
            };
            registry.register(Arc::new(Announced(registration))).unwrap();
        }
        let pins = ToolPins::new(Arc::new(Hangs), AgentName::new("tester").unwrap());
        let began = Instant::now();
        let mut trust = Trust::by(Some(&pins));
        for tool in registry.all() {
            assert!(!trust.has(&tool).await);
        }
        assert_eq!(began.elapsed(), PATIENCE);
    }
}
