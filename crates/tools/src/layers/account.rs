//! Per-tool counters of calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;

use tokio::time::Instant;
use tracing::{debug, info};

use super::{Call, CallService, RawArguments};
use crate::{failure::ToolFailure, result::ToolResult, status::CallStatus};

/// Maximum number of tools with counters of their own. Tools of servers come and go.
const MAX_TOOLS: usize = 4096;
/// Name under which further tools are counted.
const OTHERS: &str = "(others)";

/// Counters of the calls of each tool since creation. Cheap to share and to update.
#[derive(Debug, Default)]
pub struct CallAccount(RwLock<HashMap<Arc<str>, Arc<Counts>>>);

#[derive(Debug, Default)]
struct Counts {
    outcomes: [AtomicU64; CallStatus::COUNT],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    micros: AtomicU64,
}

/// Totals of the calls of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolUsage {
    /// Finished calls.
    pub calls: u64,
    /// Calls with a result.
    pub ok: u64,
    /// Calls whose result reports an error.
    pub tool_errors: u64,
    /// Failed calls by error code; `other` for codes of newer peers.
    pub failed: BTreeMap<String, u64>,
    /// Size of the arguments, in bytes.
    pub bytes_in: u64,
    /// Size of the results, in bytes.
    pub bytes_out: u64,
    /// Total duration of the calls.
    pub time: Duration,
}

impl CallAccount {
    /// Returns the totals of each tool by its name.
    #[must_use]
    pub fn by_tool(&self) -> BTreeMap<String, ToolUsage> {
        let tools = self.0.read();
        tools.iter().map(|(name, counts)| (name.to_string(), counts.read())).collect()
    }

    /// Returns the totals of all calls.
    #[must_use]
    pub fn total(&self) -> ToolUsage {
        let mut total = ToolUsage::default();
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

    fn counts_of(&self, tool: &str) -> Arc<Counts> {
        let known = |name| {
            let tools = self.0.read();
            (tools.get(name).cloned(), tools.len())
        };
        let (counts, tools) = known(tool);
        if let Some(counts) = counts {
            return counts;
        }
        let tool = if tools < MAX_TOOLS { tool } else { OTHERS };
        let mut tools = self.0.write();
        tools.entry(tool.into()).or_default().clone()
    }
}

impl Counts {
    fn count(&self, status: CallStatus, measurement: &Measurement) {
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.outcomes[status.index()], 1);
        add(&self.bytes_in, measurement.bytes_in);
        add(&self.bytes_out, measurement.bytes_out);
        add(&self.micros, u64::try_from(measurement.elapsed.as_micros()).unwrap_or(u64::MAX));
    }

    fn read(&self) -> ToolUsage {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts =
            CallStatus::all().zip(&self.outcomes).map(|(status, count)| (status, get(count)));
        let (results, failed): (Vec<_>, Vec<_>) =
            counts.partition(|(status, _)| status.is_result());
        let count = |wanted: &dyn Fn(CallStatus) -> bool| {
            results.iter().filter(|(status, _)| wanted(*status)).map(|(_, count)| count).sum()
        };
        let (ok, tool_errors) = (count(&CallStatus::is_ok), count(&|status| !status.is_ok()));
        let failed = failed.into_iter().filter(|(_, count)| *count > 0);
        let failed: BTreeMap<_, _> =
            failed.map(|(status, count)| (status.as_str().to_owned(), count)).collect();
        let calls = ok + tool_errors + failed.values().sum::<u64>();
        let time = Duration::from_micros(get(&self.micros));
        let (bytes_in, bytes_out) = (get(&self.bytes_in), get(&self.bytes_out));
        ToolUsage { calls, ok, tool_errors, failed, bytes_in, bytes_out, time }
    }
}

/// Sizes and duration of a finished call.
struct Measurement {
    bytes_in: u64,
    bytes_out: u64,
    elapsed: Duration,
}

/// Counts finished calls and logs their duration, sizes and status, but never their content.
///
/// # Cancellation
/// A call whose future is dropped is not counted.
#[derive(Debug, Clone)]
pub struct Account<S> {
    account: Option<Arc<CallAccount>>,
    /// Logs the start of a call at debug and its end at info.
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
        let counts = self.account.as_ref().map(|account| account.counts_of(call.name()));
        let logged = self.logs.then(|| (call.context.tool_call_id.clone(), call.tool.clone()));
        if let Some((id, tool)) = &logged {
            let tool = &*tool.registration().name;
            debug!(tool_call_id = %id, tool, chars_in = bytes_in, "tool request");
        }
        let started = Instant::now();
        let outcome = self.inner.call(call).await;
        let bytes_out = match &outcome {
            Ok(result) => result.bytes(),
            Err(failure) => failure.model_text().len(),
        };
        let elapsed = started.elapsed();
        let status = CallStatus::from_outcome(&outcome);
        if let Some((id, tool)) = logged {
            let tool = &*tool.registration().name;
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let (chars_in, chars_out) = (bytes_in, bytes_out);
            info!(tool_call_id = %id, tool, elapsed_ms, chars_in, chars_out, status = status.as_str(),
                "tool response");
        }
        if let Some(counts) = counts {
            let (bytes_in, bytes_out) = (bytes_in as u64, bytes_out as u64);
            counts.count(status, &Measurement { bytes_in, bytes_out, elapsed });
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rockbot_contracts::Executed;

    use super::*;
    use crate::testing::{call, service};

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_by_status() {
        let account = Arc::new(CallAccount::default());
        let outcomes = Mutex::new(vec![
            Err(ToolFailure::Overloaded { message: "full".to_owned() }),
            Err(ToolFailure::Overloaded { message: "full".to_owned() }),
            Err(ToolFailure::Cancelled { executed: Executed::Yes }),
            Ok(ToolResult::error("no")),
            Ok(ToolResult::text("four")),
        ]);
        let inner = service(move |_| {
            let outcome = outcomes.lock().unwrap().pop().expect("an outcome");
            async {
                tokio::time::advance(Duration::from_secs(1)).await;
                outcome
            }
        });
        let service = Account::new(Some(account.clone()), true, inner);
        for _ in 0..5 {
            let _ = service.call(call("echo", "{\"a\":1}")).await;
        }
        let usage = account.by_tool().remove("echo").expect("counted");
        assert_eq!((usage.calls, usage.ok, usage.tool_errors), (5, 1, 1));
        let failed = BTreeMap::from([("cancelled".to_owned(), 1), ("overloaded".to_owned(), 2)]);
        assert_eq!(usage.failed, failed);
        assert_eq!((usage.bytes_in, usage.time), (5 * 7, Duration::from_secs(5)));
        assert_eq!(account.total(), usage);
    }

    #[test]
    fn excess_tools_share_one_counter() {
        let account = CallAccount::default();
        for number in 0..MAX_TOOLS + 10 {
            account.counts_of(&format!("tool-{number}"));
        }
        let tools = account.by_tool();
        assert_eq!(tools.len(), MAX_TOOLS + 1);
        assert!(tools.contains_key(OTHERS));
    }
}
