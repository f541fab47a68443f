//! Results that are kept for a while, so that an equal call need not run.

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
    kept_results::{ENTRY_BYTES, Kept, Key, ResultCache, Unkept},
};
use crate::{
    canonical::canonical, context::ToolContext, failure::ToolFailure, limits::Tenant,
    period::Period, result::ToolResult,
};

/// Gives the kept result to a call that is equal to an earlier one. Of equal calls at the same time
/// one runs and the others wait for it.
///
/// Calls are equal when tool, definition, arguments and tenant are. Only results that are no errors
/// are kept, and only those of tools whose repetition changes nothing.
///
/// # Cancellation
/// When the call that runs is given up, one of those who wait runs in its place.
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
        let keep = call.policy.cache.filter(|_| may_be_kept(call.tool.registration().hints));
        let (Some(cache), Some(keep)) = (&self.cache, keep.and_then(Period::duration)) else {
            return self.inner.call(call).await;
        };
        let tenant = call.policy.cache_for.unwrap_or_default();
        // Nearly all calls are not kept, and need not carry this future with them.
        Box::pin(self.kept(cache, keep, tenant, call)).await
    }
}

impl<S: CallService<Call>> Cache<S> {
    async fn kept(
        &self,
        cache: &ResultCache,
        keep: Duration,
        tenant: Tenant,
        call: Call,
    ) -> Result<ToolResult, ToolFailure> {
        let key = key_of(&call, tenant);
        let waiter = Waiter::of(&call);
        let leads = AtomicBool::new(false);
        let mut mine = Some(call);
        loop {
            let mut own_failure = None;
            let run = async {
                let Some(call) = mine.take() else { return Err(Unkept::Own) };
                leads.store(true, Ordering::Relaxed);
                self.run(call, keep, cache.max_result).await.map_err(|(unkept, failure)| {
                    own_failure = failure;
                    unkept
                })
            };
            let ended = tokio::select! {
                biased;
                ended = cache.kept_or(key, run) => ended,
                failure = waiter.gives_up(&leads) => return Err(failure),
            };
            let led = leads.load(Ordering::Relaxed);
            let retold = !matches!(&ended, Err(unkept) if matches!(**unkept, Unkept::Own));
            if led || retold {
                let outcome = if led { "miss" } else { "hit" };
                counter!("rockbot_tool_cache_total", "outcome" => outcome).increment(1);
            }
            match ended {
                Ok(kept) if led || kept.until > Instant::now() => {
                    return Ok(kept.result.as_ref().clone());
                }
                Ok(_) => cache.forget(key).await,
                Err(unkept) => match (own_failure, unkept.as_ref()) {
                    (Some(failure), _) => return Err(failure),
                    (None, Unkept::Told(result)) => return Ok(result.as_ref().clone()),
                    (None, Unkept::Failed(failure)) => return Err(failure.retold()),
                    (None, Unkept::Own) => {}
                },
            }
        }
    }

    /// Runs the call, and says what becomes of how it ended; for its own asker the failure as it was.
    async fn run(
        &self,
        call: Call,
        keep: Duration,
        max_result: usize,
    ) -> Result<Kept, (Unkept, Option<ToolFailure>)> {
        match self.inner.call(call).await {
            Ok(result) => {
                let details =
                    result.details.as_ref().map_or(0, |details| details.to_string().len());
                let bytes = result.bytes() + details + ENTRY_BYTES;
                if result.is_error || bytes > max_result {
                    return Err((Unkept::Told(Box::new(result)), None));
                }
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                Ok(Kept { result: Arc::new(result), bytes, until: Instant::now() + keep })
            }
            Err(failure) => {
                let unkept = match failure.code() {
                    ToolErrorCode::ExecutionFailed
                    | ToolErrorCode::Unavailable
                    | ToolErrorCode::ToolNotFound
                    | ToolErrorCode::InvalidArguments => Unkept::Failed(failure.retold()),
                    _ => Unkept::Own,
                };
                Err((unkept, Some(failure)))
            }
        }
    }
}

/// Whoever waits for another's call, with the bounds of its own.
struct Waiter {
    context: ToolContext,
    began: Instant,
    repeatable: bool,
}

impl Waiter {
    fn of(call: &ResolvedCall) -> Self {
        let (context, repeatable) = (call.context.clone(), call.may_run_again());
        Self { context, began: Instant::now(), repeatable }
    }

    /// Returns when it waits no longer: at its deadline or when it is cancelled. Who runs the call
    /// itself has layers for that. Whether it ran is the other's to know.
    async fn gives_up(&self, leads: &AtomicBool) -> ToolFailure {
        let Self { context, began, repeatable } = self;
        let executed = Executed::Unknown;
        let failure = tokio::select! {
            () = context.cancellation.cancelled() => ToolFailure::Cancelled { executed },
            () = sleep_until(context.deadline) => {
                let after = context.deadline - *began;
                ToolFailure::TimedOut { after, executed, repeatable: *repeatable }
            }
        };
        if leads.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        failure
    }
}

/// Whether giving back an earlier result is as good as running the tool.
fn may_be_kept(hints: ToolHints) -> bool {
    hints.read_only || (hints.idempotent && !hints.destructive)
}

fn key_of(call: &ResolvedCall, tenant: Tenant) -> Key {
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
    // Kind and namespace are in the source.
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

    /// A tool that counts its runs, each of which waits at a gate, behind a cache.
    struct Stage<S> {
        cached: Arc<Cache<S>>,
        runs: Arc<AtomicU32>,
        gate: Arc<Semaphore>,
    }

    /// How the runs of the tool end.
    type Ends = fn(u32) -> Result<ToolResult, ToolFailure>;

    fn stage(ends: Ends) -> Stage<impl CallService<Call> + 'static> {
        let (runs, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let (counted, held) = (runs.clone(), gate.clone());
        let tool = service(move |call: Call| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let held = held.clone();
            async move {
                tokio::select! {
                    passed = held.acquire() => passed.expect("the gate stays").forget(),
                    () = call.context.cancellation.cancelled() => {
                        return Err(ToolFailure::Cancelled { executed: Executed::Yes });
                    }
                }
                ends(run)
            }
        });
        let cached = Cache::new(Some(ResultCache::new(1024 * 1024)), tool);
        Stage { cached: Arc::new(cached), runs, gate }
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

    impl<S: CallService<Call> + 'static> Stage<S> {
        async fn text(&self, call: Call) -> String {
            self.cached.call(call).await.expect("a result").to_text().into_owned()
        }

        fn runs(&self) -> u32 {
            self.runs.load(Ordering::SeqCst)
        }

        /// Equal calls, all of which wait for the first.
        async fn at_once(&self, count: u32) -> JoinSet<Result<ToolResult, ToolFailure>> {
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
    async fn of_equal_calls_at_once_one_runs() {
        let stage = stage(numbered);
        let calls = stage.at_once(100).await;
        stage.gate.add_permits(100);
        let ended = calls.join_all().await;
        assert!(ended.iter().all(|ended| ended.as_ref().is_ok_and(|one| one.to_text() == "1")));
        assert_eq!(stage.runs(), 1);
        assert_eq!(stage.text(call("{}")).await, "1", "and it is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn what_makes_calls_different_makes_them_run() {
        let stage = stage(numbered);
        stage.gate.add_permits(100);
        assert_eq!(stage.text(call(r#"{"a":1,"b":2}"#)).await, "1");
        assert_eq!(stage.text(call(r#"{"b":2,"a":1}"#)).await, "1", "the order of keys is none");
        assert_eq!(stage.text(call(r#"{"a":1,"b":3}"#)).await, "2", "arguments");
        let mut of_another = call(r#"{"a":1,"b":2}"#);
        of_another.context.agent = AgentName::new("another").unwrap();
        assert_eq!(stage.text(of_another).await, "3", "the agent");
        let mut changed = call(r#"{"a":1,"b":2}"#);
        let definition = ToolRegistration {
            description: "It says something else now.".to_owned(),
            hints: ToolHints::READ_ONLY,
            ..registration("count")
        };
        let registry = ToolRegistry::new();
        registry.register(Arc::new(Echo(definition))).unwrap();
        changed.tool = registry.get("count").unwrap();
        assert_eq!(stage.text(changed).await, "4", "the definition");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_is_as_wide_as_the_rule_says() {
        let stage = stage(numbered);
        stage.gate.add_permits(100);
        let call = |tenant, agent: &str, session: &str| {
            let mut call = call("{}");
            call.context.agent = AgentName::new(agent).unwrap();
            call.context.session_id = SessionId::new(session).unwrap();
            call.policy.cache_for = Some(tenant);
            call
        };
        assert_eq!(stage.text(call(Tenant::Session, "one", "a")).await, "1");
        assert_eq!(stage.text(call(Tenant::Session, "one", "b")).await, "2");
        assert_eq!(stage.text(call(Tenant::Agent, "one", "a")).await, "3");
        assert_eq!(stage.text(call(Tenant::Agent, "one", "b")).await, "3");
        assert_eq!(stage.text(call(Tenant::Everyone, "one", "a")).await, "4");
        assert_eq!(stage.text(call(Tenant::Everyone, "two", "b")).await, "4");
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_kept_for_its_time() {
        let stage = stage(numbered);
        stage.gate.add_permits(100);
        assert_eq!(stage.text(call("{}")).await, "1");
        tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
        assert_eq!(stage.text(call("{}")).await, "1");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(stage.text(call("{}")).await, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn what_went_wrong_is_told_to_those_who_wait_and_not_kept() {
        let ends: [Ends; 2] = [
            |_| Ok(ToolResult::error("no")),
            |_| Err(ToolFailure::failed_with_source("no", "a disk")),
        ];
        for end in ends {
            let stage = stage(end);
            let calls = stage.at_once(10).await;
            stage.gate.add_permits(100);
            for ended in calls.join_all().await {
                match ended {
                    Ok(result) => assert_eq!((result.is_error, &*result.to_text()), (true, "no")),
                    Err(failure) => assert_eq!(failure.chain().to_string(), "no: a disk"),
                }
            }
            assert_eq!(stage.runs(), 1);
            let _ = stage.cached.call(call("{}")).await;
            assert_eq!(stage.runs(), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cancelled_or_dropped_fails_nobody_else() {
        let stage = stage(numbered);
        let (cancelled, dropped) = (call("{}"), call("{}"));
        let cancellation = cancelled.context.cancellation.clone();
        let cached = stage.cached.clone();
        let cancelled = tokio::spawn(async move { cached.call(cancelled).await });
        tokio::task::yield_now().await;
        let cached = stage.cached.clone();
        let dropped = tokio::spawn(async move { cached.call(dropped).await });
        tokio::task::yield_now().await;
        let others = stage.at_once(10).await;
        cancellation.cancel();
        let failure = cancelled.await.unwrap().expect_err("cancelled");
        assert_eq!(failure.code(), ToolErrorCode::Cancelled);
        tokio::task::yield_now().await;
        dropped.abort();
        let _ = dropped.await;
        stage.gate.add_permits(100);
        let mut told = Vec::new();
        for ended in others.join_all().await {
            told.push(ended.expect("a result").to_text().into_owned());
        }
        assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
        assert!(stage.runs() <= 3, "{} runs", stage.runs());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_keeps_its_own_deadline() {
        let stage = stage(numbered);
        let leader = stage.at_once(1).await;
        let mut hasty = call("{}");
        hasty.context.deadline = Instant::now() + Duration::from_secs(1);
        let failure = stage.cached.call(hasty).await.expect_err("it waits no longer");
        let said = (failure.code(), failure.executed(), failure.is_retryable());
        assert_eq!(said, (ToolErrorCode::Timeout, Executed::Unknown, true));
        stage.gate.add_permits(1);
        assert!(leader.join_all().await[0].is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_repetition_would_change_is_never_kept() {
        for hints in [
            ToolHints::default(),
            ToolHints { destructive: false, ..ToolHints::default() },
            ToolHints { idempotent: true, ..ToolHints::default() },
        ] {
            let stage = stage(numbered);
            stage.gate.add_permits(2);
            let registry = ToolRegistry::new();
            let definition = ToolRegistration { hints, ..registration("count") };
            registry.register(Arc::new(Echo(definition))).unwrap();
            for run in ["1", "2"] {
                let mut call = call("{}");
                call.tool = registry.get("count").unwrap();
                assert_eq!(stage.text(call).await, run);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_result_does_not_fill_the_cache() {
        let stage = stage(|run| Ok(ToolResult::text(run.to_string().repeat(100_000))));
        stage.gate.add_permits(2);
        assert!(stage.text(call("{}")).await.starts_with('1'));
        assert!(stage.text(call("{}")).await.starts_with('2'));
    }
}
