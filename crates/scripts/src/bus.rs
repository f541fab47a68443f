//! A runner that sends scripts over the bus with `script.invoke`.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Requester};
use rockbot_contracts::{
    Envelope,
    script::{ScriptInvokeRequest, ScriptInvokeResponse},
    topology::{ReplyAddress, script_invoke},
};
use rockbot_tool_rpc::{RemoteCall, remote_call::unreadable_reply};
use rockbot_tools::{ToolContext, ToolFailure};

use crate::runner::{Isolation, Script, ScriptOutcome, ScriptRunner};

/// The gap of a script whose handler reported no isolation.
const UNREPORTED: &str = "anything: the isolation is not reported";

/// Sends each script to a service that consumes `script.invoke`.
#[derive(Debug)]
pub struct BusRunner {
    requester: Requester,
}

impl BusRunner {
    /// Creates a runner that receives replies at the script address of `address`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, address: ReplyAddress) -> Self {
        Self { requester: Requester::new(bus, address.for_scripts()) }
    }

    async fn request(
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
            // Whether a repeated run is harmless depends on the runner, which is not known here.
            repeatable: false,
            input: None,
        };
        let reply = call.execute(Envelope::from_payload(&request), context).await;
        let (response, ran_on): (ScriptInvokeResponse, _) = reply?;
        if response.tool_call_id != context.tool_call_id {
            return Err(unreadable_reply(&context.tool_call_id, &"it belongs to another call"));
        }
        Ok(ScriptOutcome {
            stdout: response.output,
            stderr: response.stderr,
            exit_code: response.exit_code,
            ended_by: response.ended_by,
            elapsed: Duration::from_millis(response.elapsed_ms),
            isolation: isolation(response.isolation, response.isolation_gaps, ran_on),
        })
    }
}

/// Returns the isolation that the handler reported. Without a report, it is not known to be complete.
fn isolation(
    mechanism: Option<String>,
    mut gaps: Vec<String>,
    ran_on: Option<String>,
) -> Isolation {
    let mechanism = mechanism.filter(|mechanism| !mechanism.is_empty());
    if mechanism.is_none() {
        gaps.push(UNREPORTED.to_owned());
    }
    Isolation { mechanism: mechanism.or(ran_on).unwrap_or_else(|| "unknown".to_owned()), gaps }
}

impl ScriptRunner for BusRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.request(script, context))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rockbot_bus::{MemoryBus, Publication};
    use rockbot_contracts::{
        AgentName, Executed, InstanceId, RoutingKey, SessionId, ToolErrorCode, script::ScriptLimit,
    };
    use rockbot_testkit::fixture::within_timeout;
    use rockbot_tool_rpc::{InvokeOptions, ToolInvokeHandler, invoke::InvokeWorkers};
    use rockbot_tools::{ToolExecutor, ToolRegistry, ToolUpdate};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        requirement::Requirements,
        served::{RunScript, ScriptProtocol},
        stopped::with_output,
        tool::ExecutePythonScript,
    };

    /// Returns what it received, in place of running it.
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
                    context.progress("so far");
                    context.cancellation.cancelled().await;
                    let failure = ToolFailure::Cancelled { executed: Executed::Yes };
                    return Err(with_output(failure, "so far\n", ""));
                }
                let seconds = script.timeout().as_secs();
                let received =
                    (script.code(), script.input(), seconds, script.packages().to_string());
                Ok(ScriptOutcome {
                    stdout: format!("{received:?}"),
                    stderr: "a warning".to_owned(),
                    exit_code: 3,
                    ended_by: Some(ScriptLimit::Disk),
                    elapsed: Duration::from_millis(12),
                    isolation: Isolation {
                        mechanism: "a sandbox".to_owned(),
                        gaps: vec!["the network".to_owned()],
                    },
                })
            })
        }
    }

    struct Fixture {
        bus: Arc<dyn Bus>,
        echo: Arc<Echo>,
        workers: InvokeWorkers,
    }

    impl Fixture {
        async fn new() -> Self {
            let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
            let echo = Arc::new(Echo::default());
            let registry = Arc::new(ToolRegistry::new());
            registry.register(Arc::new(RunScript::new(echo.clone(), true))).unwrap();
            let instance = InstanceId::generate();
            let executor = Arc::new(ToolExecutor::new(registry));
            let options = InvokeOptions::new(4).with_protocol(ScriptProtocol);
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

    /// A request that the handler accepts.
    fn request() -> ScriptInvokeRequest {
        ScriptInvokeRequest {
            tool_call_id: context().tool_call_id,
            script: "x".to_owned(),
            input_data: None,
            timeout_seconds: 7,
            pip_packages: Vec::new(),
            session_id: None,
        }
    }

    async fn execute(
        runner: &BusRunner,
        request: &ScriptInvokeRequest,
    ) -> Result<ScriptInvokeResponse, ToolFailure> {
        let call = RemoteCall {
            requester: &runner.requester,
            key: &script_invoke(),
            name: "scripts",
            repeatable: true,
            input: None,
        };
        let context = ToolContext { tool_call_id: request.tool_call_id.clone(), ..context() };
        let (response, _) = call.execute(Envelope::from_payload(request), &context).await?;
        Ok(response)
    }

    #[test]
    fn unreported_isolation_is_incomplete() {
        for (mechanism, ran_on, expected) in [
            (None, Some("scripts-manager/1"), "scripts-manager/1"),
            (None, None, "unknown"),
            (Some(""), None, "unknown"),
        ] {
            let isolation =
                isolation(mechanism.map(str::to_owned), Vec::new(), ran_on.map(str::to_owned));
            assert_eq!(isolation.mechanism, expected);
            assert!(!isolation.is_complete(), "{isolation}");
        }
        assert!(isolation(Some("pod".to_owned()), Vec::new(), None).is_complete());
    }

    #[tokio::test]
    async fn script_and_outcome_cross_the_bus() {
        let fixture = Fixture::new().await;
        let script = Script::new("print(1)").unwrap().with_input("in").unwrap();
        let script = script.with_timeout(Duration::from_secs(7)).unwrap();
        let script = script.with_packages(Requirements::parse(&["six", "attrs"]).unwrap());
        let outcome = fixture.runner().run(&script, &context()).await.unwrap();
        assert_eq!(outcome.stdout, r#"("print(1)", Some("in"), 7, "attrs, six")"#);
        assert_eq!((outcome.stderr.as_str(), outcome.exit_code), ("a warning", 3));
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Disk));
        assert_eq!(outcome.elapsed, Duration::from_millis(12));
        assert_eq!(outcome.isolation.to_string(), "a sandbox (not isolated from: the network)");
        assert!(fixture.workers.drain(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn progress_and_cancellation_cross_the_bus() {
        let fixture = Fixture::new().await;
        let (runner, mut context) = (fixture.runner(), context());
        let (sender, mut updates) = tokio::sync::mpsc::channel(8);
        context.updates = Some(Arc::new(move |update| drop(sender.try_send(update))));
        let script = Script::new("forever").unwrap();
        let cancellation = context.cancellation.clone();
        let cancel = async {
            let update = within_timeout("progress", updates.recv()).await;
            assert_eq!(update, Some(ToolUpdate::Progress("so far".to_owned())));
            cancellation.cancel();
        };
        let (result, ()) = tokio::join!(runner.run(&script, &context), cancel);
        let failure = result.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Cancelled);
        assert_eq!(failure.executed(), Executed::Yes);
        assert_eq!(failure.to_string(), "cancelled\nstdout until then:\nso far");
    }

    #[tokio::test]
    async fn script_without_handler_is_not_executed() {
        let script = Script::new("x").unwrap();
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let failure = runner(bus).run(&script, &context()).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Unavailable);
        assert_eq!(failure.executed(), Executed::No);
    }

    #[tokio::test]
    async fn handler_rejects_invalid_script() {
        let fixture = Fixture::new().await;
        let runner = fixture.runner();
        let too_long = ScriptInvokeRequest { timeout_seconds: 3000, ..request() };
        let option = "--index-url=http://evil".to_owned();
        let bad_package = ScriptInvokeRequest { pip_packages: vec![option], ..request() };
        for request in [too_long, bad_package] {
            let failure = execute(&runner, &request).await.unwrap_err();
            assert_eq!(failure.code(), ToolErrorCode::InvalidArguments, "{request:?}");
        }
        assert_eq!(fixture.echo.runs.load(Ordering::Relaxed), 0);
        execute(&runner, &request()).await.unwrap();
        assert_eq!(fixture.echo.runs.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn request_with_invalid_reply_address_is_dead_lettered() {
        let fixture = Fixture::new().await;
        for reply_to in ["tool.invoke", "tool.result.assistant.1", "script.result"] {
            let request = request();
            let request = Envelope::from_payload(&request)
                .with_correlation_id(request.tool_call_id.as_str())
                .reply_to(RoutingKey::new(reply_to).unwrap());
            let publication = Publication::mandatory(script_invoke(), request);
            fixture.bus.publish(publication).await.unwrap();
        }
        let queue = rockbot_contracts::QueueSpec::work(&script_invoke()).dead_letters().name;
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let report = fixture.bus.inspect(std::slice::from_ref(&queue)).await.unwrap();
            if report.queues[0].depth().is_some_and(|depth| depth.ready == 3) {
                break;
            }
            assert!(Instant::now() < deadline, "{report:?}");
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.echo.runs.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn tool_runs_scripts_over_the_bus() {
        let fixture = Fixture::new().await;
        let registry = Arc::new(ToolRegistry::new());
        let tool = ExecutePythonScript::new(Arc::new(fixture.runner()), true);
        registry.register(Arc::new(tool)).unwrap();
        let executor = ToolExecutor::new(registry);
        let arguments = json!({"script": "print(1)"}).to_string().into();
        let call = rockbot_tools::ToolCall { context: context(), arguments };
        let result = executor.execute(call).await.unwrap();
        assert!(result.is_error);
        assert!(result.to_text().starts_with("(stopped: it wrote more"), "{}", result.to_text());
        assert_eq!(result.details.unwrap()["exitCode"], 3);
    }
}
