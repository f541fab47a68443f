//! Scripts that run elsewhere: asked for on the bus with `script.invoke`.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Requester};
use rockbot_contracts::{
    Envelope,
    script::{ScriptInvokeRequest, ScriptInvokeResponse},
    topology::{ReplyAddress, script_invoke},
};
use rockbot_tool_rpc::{RemoteCall, remote_call::unreadable};
use rockbot_tools::{ToolContext, ToolFailure};

use crate::runner::{Isolation, Script, ScriptOutcome, ScriptRunner};

/// Asks whoever serves `script.invoke`.
#[derive(Debug)]
pub struct BusRunner {
    requester: Requester,
}

impl BusRunner {
    /// Asks on `bus` in the name of `address`, and takes the answers at its address for scripts.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, address: ReplyAddress) -> Self {
        Self { requester: Requester::new(bus, address.for_scripts()) }
    }

    async fn ask(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let request = ScriptInvokeRequest {
            tool_call_id: context.tool_call_id.clone(),
            script: script.code().to_owned(),
            input_data: script.input().map(str::to_owned),
            timeout_seconds: u32::try_from(script.timeout().as_secs()).unwrap_or(u32::MAX),
            pip_packages: script.packages().iter().map(str::to_owned).collect(),
            session_id: Some(context.session_id.clone()),
        };
        let call = RemoteCall {
            requester: &self.requester,
            key: &script_invoke(),
            name: "scripts",
            // Whether it can have done something depends on who ran it, and that is not known.
            repeatable: false,
        };
        let asked = call.ask(Envelope::of(&request), context).await;
        let (response, ran_on): (ScriptInvokeResponse, _) = asked?;
        if response.tool_call_id != context.tool_call_id {
            return Err(unreadable(&context.tool_call_id, &"it is of another script"));
        }
        let by = response.isolation.or(ran_on).unwrap_or_else(|| "unknown".to_owned());
        Ok(ScriptOutcome {
            stdout: response.output,
            stderr: response.stderr,
            exit_code: response.exit_code,
            ended_by: response.ended_by,
            elapsed: Duration::from_millis(response.elapsed_ms),
            isolation: Isolation { by, missing: response.not_kept_from },
        })
    }
}

impl ScriptRunner for BusRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.ask(script, context))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rockbot_bus::{MemoryBus, Publication};
    use rockbot_contracts::{
        AgentName, Executed, InstanceId, RoutingKey, SessionId, ToolErrorCode, script::ScriptLimit,
    };
    use rockbot_tool_rpc::{InvokeOptions, ToolInvokeHandler, invoke::InvokeWorkers};
    use rockbot_tools::{ToolExecutor, ToolRegistry};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        requirement::Requirements,
        served::{RunScript, ScriptConversation},
        tool::ExecutePythonScript,
    };

    /// Says what it was given, in place of running it.
    #[derive(Default)]
    struct Echo {
        runs: AtomicU32,
    }

    impl ScriptRunner for Echo {
        fn run<'a>(
            &'a self,
            script: &'a Script,
            context: &'a ToolContext,
        ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
            Box::pin(async move {
                self.runs.fetch_add(1, Ordering::Relaxed);
                if script.code() == "forever" {
                    context.cancellation.cancelled().await;
                    return Err(ToolFailure::Cancelled { executed: Executed::Yes });
                }
                let seconds = script.timeout().as_secs();
                let said = (script.code(), script.input(), seconds, script.packages().to_string());
                Ok(ScriptOutcome {
                    stdout: format!("{said:?}"),
                    stderr: "so it goes".to_owned(),
                    exit_code: 3,
                    ended_by: Some(ScriptLimit::Disk),
                    elapsed: Duration::from_millis(12),
                    isolation: Isolation {
                        by: "a wall".to_owned(),
                        missing: vec!["the sea".to_owned()],
                    },
                })
            })
        }
    }

    struct Stage {
        bus: Arc<dyn Bus>,
        echo: Arc<Echo>,
        workers: InvokeWorkers,
    }

    impl Stage {
        async fn set() -> Self {
            let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
            let echo = Arc::new(Echo::default());
            let registry = Arc::new(ToolRegistry::new());
            registry.register(Arc::new(RunScript::new(echo.clone(), true))).unwrap();
            let instance = InstanceId::generate();
            let executor = Arc::new(ToolExecutor::new(registry));
            let options = InvokeOptions::running(4).in_words_of(ScriptConversation);
            let handler =
                ToolInvokeHandler::new(executor, bus.clone(), "scripts", &instance, options);
            let workers = handler.start(&script_invoke(), &instance).await.unwrap();
            Self { bus, echo, workers }
        }

        fn runner(&self) -> BusRunner {
            runner(self.bus.clone())
        }
    }

    fn runner(bus: Arc<dyn Bus>) -> BusRunner {
        BusRunner::new(bus, ReplyAddress::new(agent(), InstanceId::generate()))
    }

    fn agent() -> AgentName {
        AgentName::new("assistant").unwrap()
    }

    fn context() -> ToolContext {
        ToolContext::new("execute_python_script", SessionId::generate(), agent())
    }

    #[tokio::test]
    async fn a_script_crosses_the_bus_and_its_outcome_comes_back() {
        let stage = Stage::set().await;
        let script = Script::new("print(1)").unwrap().with_input("in").unwrap();
        let script = script.within(Duration::from_secs(7)).unwrap();
        let script = script.with_packages(Requirements::parse(&["six", "attrs"]).unwrap());
        let outcome = stage.runner().run(&script, &context()).await.unwrap();
        assert_eq!(outcome.stdout, r#"("print(1)", Some("in"), 7, "attrs, six")"#);
        assert_eq!((outcome.stderr.as_str(), outcome.exit_code), ("so it goes", 3));
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Disk));
        assert_eq!(outcome.elapsed, Duration::from_millis(12));
        assert_eq!(outcome.isolation.to_string(), "a wall (not kept from: the sea)");
        assert!(stage.workers.drain(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_cancel_reaches_the_runner() {
        let stage = Stage::set().await;
        let (runner, context) = (stage.runner(), context());
        let script = Script::new("forever").unwrap();
        let echo = stage.echo.clone();
        let cancel = async {
            while echo.runs.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            context.cancellation.cancel();
        };
        let (ended, ()) = tokio::join!(runner.run(&script, &context), cancel);
        let failure = ended.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Cancelled);
        assert_eq!(failure.executed(), Executed::Yes);
    }

    #[tokio::test]
    async fn with_nobody_to_run_it_a_script_did_not_run() {
        let script = Script::new("x").unwrap();
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let failure = runner(bus).run(&script, &context()).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Unavailable);
        assert_eq!(failure.executed(), Executed::No);
    }

    #[tokio::test]
    async fn what_is_no_script_is_refused_at_the_far_end_too() {
        let stage = Stage::set().await;
        let runner = stage.runner();
        let context = context();
        let request = ScriptInvokeRequest {
            tool_call_id: context.tool_call_id.clone(),
            script: "x".to_owned(),
            input_data: None,
            timeout_seconds: 3000,
            pip_packages: vec!["--index-url=http://evil".to_owned()],
            session_id: None,
        };
        let call = RemoteCall {
            requester: &runner.requester,
            key: &script_invoke(),
            name: "scripts",
            repeatable: true,
        };
        let asked = call.ask::<ScriptInvokeResponse>(Envelope::of(&request), &context).await;
        let failure = asked.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::InvalidArguments);
        assert_eq!(stage.echo.runs.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn an_answer_goes_to_addresses_for_scripts_only() {
        let stage = Stage::set().await;
        for reply_to in ["tool.invoke", "tool.result.assistant.1", "script.result"] {
            let request = Envelope::raw("ScriptInvokeRequest", b"{}".to_vec())
                .correlated("x")
                .reply_to(RoutingKey::new(reply_to).unwrap());
            let publication = Publication::mandatory(script_invoke(), request);
            stage.bus.publish(publication).await.unwrap();
        }
        let queue = rockbot_contracts::QueueSpec::work(&script_invoke()).dead_letters().name;
        let patience = Instant::now() + Duration::from_secs(5);
        loop {
            let report = stage.bus.inspect(std::slice::from_ref(&queue)).await.unwrap();
            if report.queues[0].depth().is_some_and(|depth| depth.ready == 3) {
                break;
            }
            assert!(Instant::now() < patience, "{report:?}");
            tokio::task::yield_now().await;
        }
        assert_eq!(stage.echo.runs.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn the_tool_works_over_the_bus_as_over_any_runner() {
        let stage = Stage::set().await;
        let registry = Arc::new(ToolRegistry::new());
        let tool = ExecutePythonScript::new(Arc::new(stage.runner()), true);
        registry.register(Arc::new(tool)).unwrap();
        let executor = ToolExecutor::new(registry);
        let arguments = json!({"script": "print(1)"}).to_string().into();
        let call = rockbot_tools::ToolCall { context: context(), arguments };
        let result = executor.execute(call).await.unwrap();
        assert!(result.is_error);
        assert!(result.to_text().starts_with("(ended: it wrote more"), "{}", result.to_text());
        assert_eq!(result.details.unwrap()["exitCode"], 3);
    }
}
