//! What the calls of each tool came to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tracing::{debug, info};

use super::{Call, CallService, RawArguments};
use crate::{failure::ToolFailure, result::ToolResult, status::CallStatus};

/// The tools that are counted by themselves. Those of servers come and go.
const MOST_TOOLS: usize = 4096;
/// The name that the others are counted under.
const OTHERS: &str = "(others)";

/// Counts of the calls of each tool since it was made. Cheap to share and to count in.
#[derive(Debug, Default)]
pub struct CallAccount(RwLock<HashMap<Arc<str>, Arc<Counts>>>);

#[derive(Debug, Default)]
struct Counts {
    ended: [AtomicU64; CallStatus::COUNT],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    micros: AtomicU64,
}

/// What the calls of a tool came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolUse {
    /// Calls that ended.
    pub calls: u64,
    /// Those among them with a result.
    pub ok: u64,
    /// Those with a result in which the tool says that it failed.
    pub tool_errors: u64,
    /// Those with a failure, by its code; `other` for codes of newer peers.
    pub failed: BTreeMap<String, u64>,
    /// Bytes of arguments.
    pub bytes_in: u64,
    /// Bytes of results.
    pub bytes_out: u64,
    /// How long the calls took together.
    pub time: Duration,
}

impl CallAccount {
    /// What every tool's calls came to so far, by the tools' names.
    #[must_use]
    pub fn by_tool(&self) -> BTreeMap<String, ToolUse> {
        let tools = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tools.iter().map(|(name, counts)| (name.to_string(), counts.read())).collect()
    }

    /// What all calls came to so far.
    #[must_use]
    pub fn total(&self) -> ToolUse {
        let mut total = ToolUse::default();
        for tool in self.by_tool().into_values() {
            total.calls += tool.calls;
            total.ok += tool.ok;
            total.tool_errors += tool.tool_errors;
            total.bytes_in += tool.bytes_in;
            total.bytes_out += tool.bytes_out;
            total.time += tool.time;
            for (code, count) in tool.failed {
                *total.failed.entry(code).or_default() += count;
            }
        }
        total
    }

    fn of(&self, tool: &str) -> Arc<Counts> {
        let known = |name| {
            let tools = self.0.read().unwrap_or_else(PoisonError::into_inner);
            (tools.get(name).cloned(), tools.len())
        };
        let (counts, tools) = known(tool);
        if let Some(counts) = counts {
            return counts;
        }
        let tool = if tools < MOST_TOOLS { tool } else { OTHERS };
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tools.entry(tool.into()).or_default().clone()
    }
}

impl Counts {
    fn count(&self, status: CallStatus, end: &End) {
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.ended[status.index()], 1);
        add(&self.bytes_in, end.bytes_in);
        add(&self.bytes_out, end.bytes_out);
        add(&self.micros, u64::try_from(end.elapsed.as_micros()).unwrap_or(u64::MAX));
    }

    fn read(&self) -> ToolUse {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = CallStatus::all().zip(&self.ended).map(|(status, count)| (status, get(count)));
        let (well, failed): (Vec<_>, Vec<_>) = ended.partition(|(status, _)| status.is_result());
        let count = |wanted: &dyn Fn(CallStatus) -> bool| {
            well.iter().filter(|(status, _)| wanted(*status)).map(|(_, count)| count).sum()
        };
        let (ok, tool_errors) = (count(&CallStatus::is_ok), count(&|status| !status.is_ok()));
        let failed = failed.into_iter().filter(|(_, count)| *count > 0);
        let failed: BTreeMap<_, _> =
            failed.map(|(status, count)| (status.as_str().to_owned(), count)).collect();
        let calls = ok + tool_errors + failed.values().sum::<u64>();
        let time = Duration::from_micros(get(&self.micros));
        let (bytes_in, bytes_out) = (get(&self.bytes_in), get(&self.bytes_out));
        ToolUse { calls, ok, tool_errors, failed, bytes_in, bytes_out, time }
    }
}

/// How a call ended, in numbers.
struct End {
    bytes_in: u64,
    bytes_out: u64,
    elapsed: Duration,
}

/// Counts calls when they end, and says so in the log: how long, how much, how it ended, and never
/// what was said.
///
/// # Cancellation
/// A call whose future is dropped is not counted.
#[derive(Debug, Clone)]
pub struct Account<S> {
    account: Option<Arc<CallAccount>>,
    /// Whether a line is logged when a call begins, at debug, and when it ends, at info.
    logs: bool,
    inner: S,
}

impl<S> Account<S> {
    pub(crate) fn new(account: Option<Arc<CallAccount>>, logs: bool, inner: S) -> Self {
        Self { account, logs, inner }
    }
}

impl<S: CallService<Call>> CallService<Call> for Account<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        if self.account.is_none() && !self.logs {
            return self.inner.call(call).await;
        }
        let bytes_in = match &call.arguments {
            RawArguments::Text(text) => text.len(),
            RawArguments::Valid(value) => value.to_string().len(),
        };
        let counts = self.account.as_ref().map(|account| account.of(call.name()));
        let logged = self.logs.then(|| (call.context.tool_call_id.clone(), call.tool.clone()));
        if let Some((id, tool)) = &logged {
            let tool = &*tool.registration().name;
            debug!(tool_call_id = %id, tool, chars_in = bytes_in, "tool request");
        }
        let began = Instant::now();
        let ended = self.inner.call(call).await;
        let bytes_out = match &ended {
            Ok(result) => result.bytes(),
            Err(failure) => failure.model_text().len(),
        };
        let elapsed = began.elapsed();
        let status = CallStatus::from_outcome(&ended);
        if let Some((id, tool)) = logged {
            let tool = &*tool.registration().name;
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let (chars_in, chars_out) = (bytes_in, bytes_out);
            info!(tool_call_id = %id, tool, elapsed_ms, chars_in, chars_out, status = status.as_str(),
                "tool response");
        }
        if let Some(counts) = counts {
            let (bytes_in, bytes_out) = (bytes_in as u64, bytes_out as u64);
            counts.count(status, &End { bytes_in, bytes_out, elapsed });
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rockbot_contracts::Executed;

    use super::*;
    use crate::testing::{call, service};

    #[tokio::test(start_paused = true)]
    async fn every_call_of_a_tool_is_counted_with_how_it_ended() {
        let account = Arc::new(CallAccount::default());
        let ends = Mutex::new(vec![
            Err(ToolFailure::Overloaded { message: "full".to_owned() }),
            Err(ToolFailure::Overloaded { message: "full".to_owned() }),
            Err(ToolFailure::Cancelled { executed: Executed::Yes }),
            Ok(ToolResult::error("no")),
            Ok(ToolResult::text("four")),
        ]);
        let inner = service(move |_| {
            let end = ends.lock().unwrap().pop().expect("an end");
            async {
                tokio::time::advance(Duration::from_secs(1)).await;
                end
            }
        });
        let service = Account::new(Some(account.clone()), true, inner);
        for _ in 0..5 {
            let _ = service.call(call("echo", "{\"a\":1}")).await;
        }
        let used = account.by_tool().remove("echo").expect("counted");
        assert_eq!((used.calls, used.ok, used.tool_errors), (5, 1, 1));
        let failed = BTreeMap::from([("cancelled".to_owned(), 1), ("overloaded".to_owned(), 2)]);
        assert_eq!(used.failed, failed);
        assert_eq!((used.bytes_in, used.time), (5 * 7, Duration::from_secs(5)));
        assert_eq!(account.total(), used);
    }

    #[test]
    fn tools_without_end_are_counted_together() {
        let account = CallAccount::default();
        for number in 0..MOST_TOOLS + 10 {
            account.of(&format!("tool-{number}"));
        }
        let tools = account.by_tool();
        assert_eq!(tools.len(), MOST_TOOLS + 1);
        assert!(tools.contains_key(OTHERS));
    }
}
