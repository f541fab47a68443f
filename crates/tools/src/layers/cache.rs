//! Caching of results.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics::counter;
use rockbot_contracts::{AgentName, Executed, SessionId, ToolErrorCode, ToolHints};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until};

use super::{
    Call, CallService, RawArguments, ResolvedCall,
    result_cache::{CachedResult, ENTRY_BYTES, Key, ResultCache, Uncached},
};
use crate::{
    canonical::canonical, context::ToolContext, failure::ToolFailure, limits::Tenant,
    period::Period, result::ToolResult,
};

/// Returns the cached result of an equal earlier call. Of equal concurrent calls one runs, and the
/// others wait for its result.
///
/// Calls are equal if tool, definition, arguments and tenant are equal. Only successful results are
/// cached, and only those of tools that are safe to repeat.
///
/// # Cancellation
/// If the call that runs is dropped, one of the waiting calls runs in its place.
#[derive(Debug, Clone)]
pub struct Cache<S> {
    cache: Option<Arc<ResultCache>>,
    inner: S,
}

impl<S> Cache<S> {
    pub(crate) fn new(cache: Option<Arc<ResultCache>>, inner: S) -> Self {
        Self { cache, inner }
    }
}

impl<S: CallService<Call>> CallService<Call> for Cache<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let ttl = call.policy.cache.filter(|_| is_cacheable(call.tool.registration().hints));
        let (Some(cache), Some(ttl)) = (&self.cache, ttl.and_then(Period::duration)) else {
            return self.inner.call(call).await;
        };
        let tenant = call.policy.cache_for.unwrap_or_default();
        // Boxed, because few calls are cached and the others should not carry this future.
        Box::pin(self.call_cached(cache, ttl, tenant, call)).await
    }
}

impl<S: CallService<Call>> Cache<S> {
    async fn call_cached(
        &self,
        cache: &ResultCache,
        ttl: Duration,
        tenant: Tenant,
        call: Call,
    ) -> Result<ToolResult, ToolFailure> {
        let key = cache_key(&call, tenant);
        let wait_limits = WaitLimits::from_call(&call);
        let is_leader = AtomicBool::new(false);
        let mut pending = Some(call);
        loop {
            let mut own_failure = None;
            let run = async {
                let Some(call) = pending.take() else { return Err(Uncached::Unshared) };
                is_leader.store(true, Ordering::Relaxed);
                self.run(call, ttl, cache.max_result).await.map_err(|(uncached, failure)| {
                    own_failure = failure;
                    uncached
                })
            };
            let outcome = tokio::select! {
                biased;
                outcome = cache.get_or_run(key, run) => outcome,
                failure = wait_limits.exceeded(&is_leader) => return Err(failure),
            };
            let led = is_leader.load(Ordering::Relaxed);
            let is_shared =
                !matches!(&outcome, Err(uncached) if matches!(**uncached, Uncached::Unshared));
            if led || is_shared {
                let label = if led { "miss" } else { "hit" };
                counter!("rockbot_tool_cache_total", "outcome" => label).increment(1);
            }
            match outcome {
                Ok(cached) if led || cached.until > Instant::now() => {
                    let result = cached.result.as_ref().clone();
                    return Ok(if led { result } else { without_stages(result) });
                }
                Ok(_) => cache.remove_expired(key).await,
                Err(uncached) => match (own_failure, uncached.as_ref()) {
                    (Some(failure), _) => return Err(failure),
                    (None, Uncached::Result(result)) => {
                        let result = result.as_ref().clone();
                        return Ok(if led { result } else { without_stages(result) });
                    }
                    (None, Uncached::Failed(failure)) => return Err(failure.clone_for_caller()),
                    (None, Uncached::Unshared) => {}
                },
            }
        }
    }

    /// Runs the call. On failure it returns the outcome for waiting calls, and the failure for its caller.
    async fn run(
        &self,
        call: Call,
        ttl: Duration,
        max_result: usize,
    ) -> Result<CachedResult, (Uncached, Option<ToolFailure>)> {
        match self.inner.call(call).await {
            Ok(result) => {
                let details =
                    result.details.as_ref().map_or(0, |details| details.to_string().len());
                let bytes = result.bytes() + details + ENTRY_BYTES;
                if result.is_error || result.is_provisional || bytes > max_result {
                    return Err((Uncached::Result(Box::new(result)), None));
                }
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                Ok(CachedResult { result: Arc::new(result), bytes, until: Instant::now() + ttl })
            }
            Err(failure) => {
                let uncached = match failure.code() {
                    ToolErrorCode::ExecutionFailed
                    | ToolErrorCode::Unavailable
                    | ToolErrorCode::ToolNotFound
                    | ToolErrorCode::InvalidArguments => {
                        Uncached::Failed(failure.clone_for_caller())
                    }
                    _ => Uncached::Unshared,
                };
                Err((uncached, Some(failure)))
            }
        }
    }
}

/// Limits of a call that waits for an equal one.
struct WaitLimits {
    context: ToolContext,
    started: Instant,
    repeatable: bool,
}

impl WaitLimits {
    fn from_call(call: &ResolvedCall) -> Self {
        let (context, repeatable) = (call.context.clone(), call.may_retry());
        Self { context, started: Instant::now(), repeatable }
    }

    /// Returns when the call must stop waiting: at its deadline or on cancellation. The leader is
    /// excluded, because inner layers enforce its limits. `executed` is unknown, because another call
    /// may have run the tool.
    async fn exceeded(&self, is_leader: &AtomicBool) -> ToolFailure {
        let Self { context, started, repeatable } = self;
        let executed = Executed::Unknown;
        let failure = tokio::select! {
            () = context.cancellation.cancelled() => ToolFailure::Cancelled { executed },
            () = sleep_until(context.deadline) => {
                let after = context.deadline - *started;
                ToolFailure::TimedOut { after, executed, repeatable: *repeatable }
            }
        };
        if is_leader.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        failure
    }
}

/// Returns a result for a call that did not produce it: the stages are those of another call.
fn without_stages(result: ToolResult) -> ToolResult {
    ToolResult { stages: None, ..result }
}

/// Returns `true` if an earlier result is as good as running the tool.
fn is_cacheable(hints: ToolHints) -> bool {
    hints.read_only || (hints.idempotent && !hints.destructive)
}

fn cache_key(call: &ResolvedCall, tenant: Tenant) -> Key {
    let registration = call.tool.registration();
    let arguments = match &call.arguments {
        RawArguments::Valid(value) => canonical(value),
        RawArguments::Text(text) => text.to_string(),
    };
    let ToolContext { agent, session_id, .. } = &call.context;
    let (agent, session) = match tenant {
        Tenant::Agent => (AgentName::as_str(agent), ""),
        Tenant::Session => (agent.as_str(), SessionId::as_str(session_id)),
        Tenant::Everyone => ("", ""),
    };
    let source = registration.source.to_string();
    let mut hash = Sha256::new();
    // The source includes the kind and the namespace.
    for part in [&source, &registration.name, call.tool.fingerprint(), &arguments, agent, session] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use rockbot_contracts::ToolRegistration;
    use tokio::{sync::Semaphore, task::JoinSet};

    use super::*;
    use crate::{
        registry::ToolRegistry,
        testing::{self, Echo, registration, service},
    };

    const MINUTE: Duration = Duration::from_secs(60);

    /// A cached tool that counts its runs. Each run waits for a permit of the gate.
    struct Fixture<S> {
        cached: Arc<Cache<S>>,
        runs: Arc<AtomicU32>,
        gate: Arc<Semaphore>,
    }

    /// Outcome of the nth run.
    type Outcome = fn(u32) -> Result<ToolResult, ToolFailure>;

    fn fixture(outcome: Outcome) -> Fixture<impl CallService<Call> + 'static> {
        let (runs, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let (counted, held) = (runs.clone(), gate.clone());
        let tool = service(move |call: Call| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let held = held.clone();
            async move {
                tokio::select! {
                    passed = held.acquire() => passed.expect("the semaphore is open").forget(),
                    () = call.context.cancellation.cancelled() => {
                        return Err(ToolFailure::Cancelled { executed: Executed::Yes });
                    }
                }
                outcome(run)
            }
        });
        let cached = Cache::new(Some(ResultCache::new(1024 * 1024)), tool);
        Fixture { cached: Arc::new(cached), runs, gate }
    }

    fn numbered(run: u32) -> Result<ToolResult, ToolFailure> {
        Ok(ToolResult::text(run.to_string()))
    }

    fn call(arguments: &str) -> Call {
        let mut call = testing::call("count", arguments);
        call.arguments = RawArguments::Valid(serde_json::from_str(arguments).unwrap());
        call.policy.cache = Some(MINUTE.into());
        call
    }

    impl<S: CallService<Call> + 'static> Fixture<S> {
        async fn text(&self, call: Call) -> String {
            self.cached.call(call).await.expect("a result").to_text().into_owned()
        }

        fn runs(&self) -> u32 {
            self.runs.load(Ordering::SeqCst)
        }

        /// Starts equal calls, all of which wait for the first.
        async fn concurrent_calls(&self, count: u32) -> JoinSet<Result<ToolResult, ToolFailure>> {
            let mut calls = JoinSet::new();
            for _ in 0..count {
                let cached = self.cached.clone();
                calls.spawn(async move { cached.call(call("{}")).await });
            }
            for _ in 0..count {
                tokio::task::yield_now().await;
            }
            calls
        }
    }

    #[tokio::test(start_paused = true)]
    async fn equal_concurrent_calls_run_once() {
        let fixture = fixture(numbered);
        let calls = fixture.concurrent_calls(100).await;
        fixture.gate.add_permits(100);
        let outcome = calls.join_all().await;
        assert!(
            outcome.iter().all(|outcome| outcome.as_ref().is_ok_and(|one| one.to_text() == "1"))
        );
        assert_eq!(fixture.runs(), 1);
        assert_eq!(fixture.text(call("{}")).await, "1", "the result is cached");
    }

    #[tokio::test(start_paused = true)]
    async fn different_calls_are_not_shared() {
        let fixture = fixture(numbered);
        fixture.gate.add_permits(100);
        assert_eq!(fixture.text(call(r#"{"a":1,"b":2}"#)).await, "1");
        assert_eq!(
            fixture.text(call(r#"{"b":2,"a":1}"#)).await,
            "1",
            "the order of keys is ignored"
        );
        assert_eq!(fixture.text(call(r#"{"a":1,"b":3}"#)).await, "2", "arguments");
        let mut of_another = call(r#"{"a":1,"b":2}"#);
        of_another.context.agent = AgentName::new("another").unwrap();
        assert_eq!(fixture.text(of_another).await, "3", "the agent");
        let mut changed = call(r#"{"a":1,"b":2}"#);
        let definition = ToolRegistration {
            description: "A changed description.".to_owned(),
            hints: ToolHints::READ_ONLY,
            ..registration("count")
        };
        let registry = ToolRegistry::new();
        registry.register(Arc::new(Echo(definition))).unwrap();
        changed.tool = registry.get("count").unwrap();
        assert_eq!(fixture.text(changed).await, "4", "the definition");
    }

    #[tokio::test(start_paused = true)]
    async fn tenant_limits_sharing() {
        let fixture = fixture(numbered);
        fixture.gate.add_permits(100);
        let call = |tenant, agent: &str, session: &str| {
            let mut call = call("{}");
            call.context.agent = AgentName::new(agent).unwrap();
            call.context.session_id = SessionId::new(session).unwrap();
            call.policy.cache_for = Some(tenant);
            call
        };
        assert_eq!(fixture.text(call(Tenant::Session, "one", "a")).await, "1");
        assert_eq!(fixture.text(call(Tenant::Session, "one", "b")).await, "2");
        assert_eq!(fixture.text(call(Tenant::Agent, "one", "a")).await, "3");
        assert_eq!(fixture.text(call(Tenant::Agent, "one", "b")).await, "3");
        assert_eq!(fixture.text(call(Tenant::Everyone, "one", "a")).await, "4");
        assert_eq!(fixture.text(call(Tenant::Everyone, "two", "b")).await, "4");
    }

    #[tokio::test(start_paused = true)]
    async fn cached_result_expires() {
        let fixture = fixture(numbered);
        fixture.gate.add_permits(100);
        assert_eq!(fixture.text(call("{}")).await, "1");
        tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
        assert_eq!(fixture.text(call("{}")).await, "1");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(fixture.text(call("{}")).await, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_shared_but_not_cached() {
        let outcomes: [Outcome; 2] = [
            |_| Ok(ToolResult::error("no")),
            |_| Err(ToolFailure::failed_with_source("no", "a disk")),
        ];
        for outcome in outcomes {
            let fixture = fixture(outcome);
            let calls = fixture.concurrent_calls(10).await;
            fixture.gate.add_permits(100);
            for outcome in calls.join_all().await {
                match outcome {
                    Ok(result) => assert_eq!((result.is_error, &*result.to_text()), (true, "no")),
                    Err(failure) => assert_eq!(failure.chain().to_string(), "no: a disk"),
                }
            }
            assert_eq!(fixture.runs(), 1);
            let _ = fixture.cached.call(call("{}")).await;
            assert_eq!(fixture.runs(), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn provisional_results_are_not_cached() {
        let fixture =
            fixture(|_| Ok(ToolResult { is_provisional: true, ..ToolResult::text("a part") }));
        fixture.gate.add_permits(100);
        for runs in [1, 2] {
            assert_eq!(fixture.text(call("{}")).await, "a part");
            assert_eq!(fixture.runs(), runs);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_leader_does_not_fail_waiting_calls() {
        let fixture = fixture(numbered);
        let (cancelled, dropped) = (call("{}"), call("{}"));
        let cancellation = cancelled.context.cancellation.clone();
        let cached = fixture.cached.clone();
        let cancelled = tokio::spawn(async move { cached.call(cancelled).await });
        tokio::task::yield_now().await;
        let cached = fixture.cached.clone();
        let dropped = tokio::spawn(async move { cached.call(dropped).await });
        tokio::task::yield_now().await;
        let others = fixture.concurrent_calls(10).await;
        cancellation.cancel();
        let failure = cancelled.await.unwrap().expect_err("cancelled");
        assert_eq!(failure.code(), ToolErrorCode::Cancelled);
        tokio::task::yield_now().await;
        dropped.abort();
        let _ = dropped.await;
        fixture.gate.add_permits(100);
        let mut results = Vec::new();
        for outcome in others.join_all().await {
            results.push(outcome.expect("a result").to_text().into_owned());
        }
        assert!(results.iter().all(|one| *one == results[0]), "{results:?}");
        assert!(fixture.runs() <= 3, "{} runs", fixture.runs());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_call_has_own_deadline() {
        let fixture = fixture(numbered);
        let leader = fixture.concurrent_calls(1).await;
        let mut hasty = call("{}");
        hasty.context.deadline = Instant::now() + Duration::from_secs(1);
        let failure = fixture.cached.call(hasty).await.expect_err("the deadline passed");
        let details = (failure.code(), failure.executed(), failure.is_retryable());
        assert_eq!(details, (ToolErrorCode::Timeout, Executed::Unknown, true));
        fixture.gate.add_permits(1);
        assert!(leader.join_all().await[0].is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn unsafe_to_repeat_tools_are_not_cached() {
        for hints in [
            ToolHints::default(),
            ToolHints { destructive: false, ..ToolHints::default() },
            ToolHints { idempotent: true, ..ToolHints::default() },
        ] {
            let fixture = fixture(numbered);
            fixture.gate.add_permits(2);
            let registry = ToolRegistry::new();
            let definition = ToolRegistration { hints, ..registration("count") };
            registry.register(Arc::new(Echo(definition))).unwrap();
            for run in ["1", "2"] {
                let mut call = call("{}");
                call.tool = registry.get("count").unwrap();
                assert_eq!(fixture.text(call).await, run);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn oversized_result_is_not_cached() {
        let fixture = fixture(|run| Ok(ToolResult::text(run.to_string().repeat(100_000))));
        fixture.gate.add_permits(2);
        assert!(fixture.text(call("{}")).await.starts_with('1'));
        assert!(fixture.text(call("{}")).await.starts_with('2'));
    }
}
