//! A handler with a journal on the bus of a fleet.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{HandlerLoad, HandlerPool, InstanceId, topology::tool_invoke};
use rockbot_store::{Clock, MemoryStore};
use rockbot_tool_rpc::{
    AnnouncedHandler, CallJournal, CatalogAnnouncer, InvokeOptions, JournalOptions,
    ToolInvokeHandler, invoke::InvokeWorkers,
};
use rockbot_tools::{
    LayerOptions, Tool, ToolContext, ToolExecutor, ToolFailure, ToolHints, ToolRegistration,
    ToolRegistry, ToolResult,
};
use serde_json::{Value, json};

use crate::fleet::{Fleet, registration};

/// Behavior of a call.
#[derive(Clone, Copy)]
enum Behavior {
    /// Returns the text of the arguments, and counts its runs.
    Echo,
    /// Reports an error.
    Fail,
    /// Never ends.
    Hang,
}

struct TestTool {
    registration: ToolRegistration,
    behavior: Behavior,
    runs: Arc<AtomicU32>,
}

impl Tool for TestTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            match self.behavior {
                Behavior::Echo => {
                    let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
                    let text = arguments["text"].as_str().unwrap_or_default();
                    Ok(ToolResult::text(format!("{text} in run {run}")))
                }
                Behavior::Fail => Ok(ToolResult::error("exit code 1")),
                Behavior::Hang => std::future::pending().await,
            }
        })
    }
}

/// A handler with the tools `read`, `write`, `fail` and `hang`; all but `write` are read-only.
pub(crate) struct Handler {
    /// Runs of `read` and `write`.
    runs: Arc<AtomicU32>,
    _handler: Arc<ToolInvokeHandler>,
    _workers: InvokeWorkers,
    _announcer: CatalogAnnouncer,
}

impl Handler {
    pub(crate) async fn start(fleet: &Fleet) -> Self {
        let runs = Arc::new(AtomicU32::new(0));
        let registry = Arc::new(ToolRegistry::new());
        for (name, hints, behavior) in [
            ("read", ToolHints::READ_ONLY, Behavior::Echo),
            ("write", ToolHints::default(), Behavior::Echo),
            ("fail", ToolHints::READ_ONLY, Behavior::Fail),
            ("hang", ToolHints::READ_ONLY, Behavior::Hang),
        ] {
            let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
            let registration = ToolRegistration { parameters, hints, ..registration(name) };
            let tool = TestTool { registration, behavior, runs: runs.clone() };
            registry.register(Arc::new(tool)).unwrap();
        }
        let instance = InstanceId::generate();
        let store = Arc::new(MemoryStore::new(Clock::System));
        let journal = CallJournal::start(store, &instance, JournalOptions::default());
        let options = InvokeOptions::new(16).with_journal(journal);
        let executor = ToolExecutor::with_layers(registry.clone(), LayerOptions::default());
        let bus = fleet.bus.clone();
        let handler =
            ToolInvokeHandler::new(Arc::new(executor), bus.clone(), "handler", &instance, options);
        let workers = handler.start(&tool_invoke(), &instance).await.unwrap();
        let announced = AnnouncedHandler {
            service: "handler".to_owned(),
            instance,
            pool: HandlerPool::Unnamed,
            registry,
            load: Box::new(HandlerLoad::default),
            instructions: Box::new(Vec::new),
            guides: Vec::new(),
            script_isolation: None,
        };
        let announcer = CatalogAnnouncer::start(bus, announced).await.unwrap();
        Self { runs, _handler: handler, _workers: workers, _announcer: announcer }
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}
