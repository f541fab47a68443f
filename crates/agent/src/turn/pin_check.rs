//! Pin checks for a whole list of tools.

use std::time::Duration;

use rockbot_contracts::ToolErrorCode;
use rockbot_tools::{ToolPins, layers::pin, registry::RegisteredTool};
use tokio::time::{Instant, timeout_at};

/// Time limit for all checks of a list. Tools that are not checked by then are not offered.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks tools one after the other. After the first failure of the store, it is not queried again.
pub(super) struct PinCheck<'a> {
    pins: Option<&'a ToolPins>,
    deadline: Instant,
    store_unavailable: bool,
}

impl<'a> PinCheck<'a> {
    /// Creates a check. Without pins, every definition is trusted.
    pub(super) fn new(pins: Option<&'a ToolPins>) -> Self {
        Self { pins, deadline: Instant::now() + LIST_TIMEOUT, store_unavailable: false }
    }

    /// Returns `true` if the tool may be offered.
    pub(super) async fn allows(&mut self, tool: &RegisteredTool) -> bool {
        let Some(pins) = self.pins.filter(|_| tool.tool().is_announced()) else { return true };
        if self.store_unavailable {
            return false;
        }
        match timeout_at(self.deadline, pin::check(pins, tool)).await {
            Ok(Ok(())) => true,
            Ok(Err(failure)) => {
                self.store_unavailable = failure.code() == ToolErrorCode::Unavailable;
                false
            }
            Err(_) => {
                self.store_unavailable = true;
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

    /// A tool announced by a handler.
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
    async fn hanging_store_delays_a_list_once() {
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
        let started = Instant::now();
        let mut pin_check = PinCheck::new(Some(&pins));
        for tool in registry.all() {
            assert!(!pin_check.allows(&tool).await);
        }
        assert_eq!(started.elapsed(), LIST_TIMEOUT);
    }
}
