//! The large results that clients were given handles of.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rockbot_contracts::ContentBlock;
use rockbot_tools::{ToolResult, outputs::TOOL_OUTPUT};
use serde::Deserialize;
use tokio::time::Instant;

/// Handles that are listed for a client, at most. The oldest are dropped.
const MAX_OF_CLIENT: usize = 64;
/// Clients with listed handles, at most. The handles of others are still valid.
const MAX_CLIENTS: usize = 1024;
/// Time for which a handle is listed. Handlers keep the outputs as long by default.
const LISTED_FOR: Duration = Duration::from_secs(3600);
/// Longest first line of a result that can be a handle, in bytes.
const MAX_HANDLE_LINE: usize = 1024;

/// A large result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownOutput {
    pub(crate) handle: String,
    /// The tool whose result it is.
    pub(crate) tool: Arc<str>,
    /// Size in bytes.
    pub(crate) bytes: u64,
    listed_until: Instant,
}

/// The handles in the results of each client, newest last.
///
/// A handle grants no access by itself: the store checks its owner when it is read.
#[derive(Debug, Default)]
pub(crate) struct KnownOutputs(Mutex<HashMap<Arc<str>, VecDeque<KnownOutput>>>);

impl KnownOutputs {
    /// Records the handle of a result, if it has one.
    pub(crate) fn record(
        &self,
        client: &Arc<str>,
        tool: &Arc<str>,
        result: &ToolResult,
    ) -> Option<KnownOutput> {
        let now = Instant::now();
        let HandleLine { tool_output: found } = handle_line(result)?;
        let output = KnownOutput {
            handle: found.handle,
            tool: tool.clone(),
            bytes: found.bytes,
            listed_until: now + LISTED_FOR,
        };
        let mut clients = self.0.lock();
        if !clients.contains_key(client) && clients.len() >= MAX_CLIENTS {
            clients.retain(|_, known| known.back().is_some_and(|last| last.listed_until > now));
        }
        if clients.contains_key(client) || clients.len() < MAX_CLIENTS {
            let known = clients.entry(client.clone()).or_default();
            known.retain(|other| other.listed_until > now && other.handle != output.handle);
            known.push_back(output.clone());
            if known.len() > MAX_OF_CLIENT {
                known.pop_front();
            }
        }
        Some(output)
    }

    /// Returns the handles of a client, newest first.
    pub(crate) fn list(&self, client: &str) -> Vec<KnownOutput> {
        let now = Instant::now();
        let clients = self.0.lock();
        let known = clients.get(client).into_iter().flatten().rev();
        known.filter(|output| output.listed_until > now).cloned().collect()
    }
}

/// The first line of a result that was replaced by a handle.
#[derive(Deserialize)]
struct HandleLine {
    tool_output: FoundHandle,
}

#[derive(Deserialize)]
struct FoundHandle {
    handle: String,
    bytes: u64,
}

fn handle_line(result: &ToolResult) -> Option<HandleLine> {
    let ContentBlock::Text { text } = result.content.first()? else { return None };
    let line = text.lines().next().filter(|line| line.len() <= MAX_HANDLE_LINE)?;
    if !line.starts_with(&format!("{{\"{TOOL_OUTPUT}\"")) {
        return None;
    }
    let line: HandleLine = serde_json::from_str(line).ok()?;
    is_handle(&line.tool_output.handle).then_some(line)
}

/// Returns whether a text has the form of a handle: `out-` and 32 lower-case hexadecimal digits.
pub(crate) fn is_handle(text: &str) -> bool {
    text.strip_prefix("out-").is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_store::{Clock, MemoryStore};
    use rockbot_tools::{Outputs, OutputsSection, ToolContext};

    use super::*;

    fn names() -> (Arc<str>, Arc<str>) {
        ("client".into(), "read_file".into())
    }

    #[tokio::test]
    async fn handle_of_a_stored_output_is_recognized() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let outputs = Outputs::new(store, OutputsSection::default());
        let agent = AgentName::new("cli").unwrap();
        let context = ToolContext::new("read_file", SessionId::generate(), agent);
        let stored = outputs.store(&context, "line\n".repeat(10_000)).await.unwrap();
        let known = KnownOutputs::default();
        let (client, tool) = names();
        let found = known.record(&client, &tool, &ToolResult::text(stored.message)).unwrap();
        assert_eq!((found.handle.as_str(), found.bytes), (stored.handle.as_str(), 50_000));
        assert_eq!(known.list("client"), [found]);
        assert_eq!(known.list("another"), []);
    }

    #[tokio::test(start_paused = true)]
    async fn list_is_bounded_and_expires() {
        let (known, (client, tool)) = (KnownOutputs::default(), names());
        let result = |number: usize| {
            let handle = format!("out-{number:032x}");
            let line = serde_json::json!({"tool_output": {"handle": handle, "bytes": number}});
            ToolResult::text(format!("{line}\noutline"))
        };
        for number in 0..=MAX_OF_CLIENT {
            assert!(known.record(&client, &tool, &result(number)).is_some());
        }
        let listed = known.list("client");
        assert_eq!(listed.len(), MAX_OF_CLIENT);
        assert_eq!(listed[0].bytes, MAX_OF_CLIENT as u64, "the newest comes first");
        tokio::time::advance(LISTED_FOR).await;
        assert_eq!(known.list("client"), []);
    }

    #[test]
    fn other_results_have_no_handle() {
        let (known, (client, tool)) = (KnownOutputs::default(), names());
        for text in [
            "",
            "plain",
            "{\"tool_output\": 1}",
            "{\"tool_output\":{\"handle\":\"../../etc\",\"bytes\":1}}",
            "{\"tool_output\":{\"handle\":\"out-00\",\"bytes\":1}}",
        ] {
            assert_eq!(known.record(&client, &tool, &ToolResult::text(text)), None, "{text}");
        }
    }
}
