//! Test models, tools and agents. Tests with delays use `start_paused = true`: the clock advances only when
//! every task waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream,
};
use rockbot_agent::{
    Agent, AgentDefinition, AgentLimits, AgentParts, Approvals, ContextSource, Conversations,
    McpParts, ModelBehavior, ProgressSink, Team, TurnAnswer, TurnEvent,
};
use rockbot_contracts::{
    AgentName, ApprovalAnswer, ApprovalDecision, ApprovalId, ContentBlock, SessionId, ToolCallId,
    UserMessage,
};
use rockbot_llm::{
    ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason,
    ScriptedModel, ScriptedTurn,
};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolPins, ToolProvider, ToolRegistration,
    ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Records every request and checks that a strict model server would accept it.
pub(crate) struct RecordingModel {
    inner: Box<dyn ChatModel>,
    on_request: Box<dyn Fn() + Send + Sync>,
    pub(crate) requests: Mutex<Vec<ChatRequest>>,
}

impl RecordingModel {
    pub(crate) fn new(inner: impl ChatModel) -> Arc<Self> {
        let (inner, on_request) = (Box::new(inner), Box::new(|| ()));
        Arc::new(Self { inner, on_request, requests: Mutex::default() })
    }

    /// Sets a function that is called at each request.
    pub(crate) fn on_request(
        self: Arc<Self>,
        handler: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let inner = Arc::into_inner(self).expect("not shared yet");
        Arc::new(Self { on_request: Box::new(handler), ..inner })
    }

    pub(crate) fn script(turns: impl IntoIterator<Item = ScriptedTurn>) -> Arc<Self> {
        Self::new(ScriptedModel::new(turns))
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(crate) fn last_request(&self) -> ChatRequest {
        self.requests.lock().unwrap().last().expect("a request").clone()
    }

    /// Returns the tool results in the last request.
    pub(crate) fn tool_results(&self) -> Vec<String> {
        let result = |message| match message {
            ChatMessage::Tool { content, .. } => Some(content),
            _ => None,
        };
        self.last_request().messages.into_iter().filter_map(result).collect()
    }
}

impl ChatModel for RecordingModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        assert_acceptable(&request.messages);
        self.requests.lock().unwrap().push(request.clone());
        (self.on_request)();
        self.inner.stream(request)
    }
}

/// Checks the rules of strict model servers.
fn assert_acceptable(messages: &[ChatMessage]) {
    assert!(matches!(messages[0], ChatMessage::System(_)), "{messages:#?}");
    let mut open = VecDeque::new();
    for message in &messages[1..] {
        match message {
            ChatMessage::Tool { tool_call_id, content } => {
                assert_eq!(open.pop_front().as_ref(), Some(tool_call_id), "{messages:#?}");
                assert!(!content.is_empty());
                continue;
            }
            _ => assert!(open.is_empty(), "calls {open:?} have no result: {messages:#?}"),
        }
        match message {
            ChatMessage::Assistant { text, tool_calls } => {
                assert!(!text.is_empty() || !tool_calls.is_empty(), "empty answer");
                open.extend(tool_calls.iter().map(|call| call.id.clone()));
            }
            ChatMessage::User(text) => assert!(!text.is_empty()),
            ChatMessage::Media(media) => assert!(!media.is_empty()),
            other => panic!("unexpected {other:?}: {messages:#?}"),
        }
    }
    assert!(open.is_empty(), "{messages:#?}");
    assert!(!matches!(messages.last(), Some(ChatMessage::Assistant { .. })), "{messages:#?}");
}

/// An answer of a [`CannedModel`].
pub(crate) enum Answer {
    Events(Vec<ChatEvent>),
    Fails(ChatError),
    Never,
    /// Waits for a permit first.
    Gated(Arc<Semaphore>, &'static str),
    Panics,
}

/// Returns its answers in order, whatever the request.
pub(crate) struct CannedModel(Mutex<VecDeque<Answer>>);

impl CannedModel {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self(Mutex::new(answers.into_iter().collect()))
    }
}

impl ChatModel for CannedModel {
    fn name(&self) -> &str {
        "canned"
    }

    fn stream<'a>(&'a self, _: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let answer = self.0.lock().unwrap().pop_front().expect("an answer is left");
        async move {
            let events = match answer {
                Answer::Events(events) => events,
                Answer::Fails(error) => return Err(error),
                Answer::Never => return pending().await,
                Answer::Gated(gate, text) => {
                    gate.acquire().await.unwrap().forget();
                    text_events(text)
                }
                Answer::Panics => panic!("a model that panics"),
            };
            Ok(stream::iter(events.into_iter().map(Ok)).boxed())
        }
        .boxed()
    }
}

pub(crate) fn text_events(text: &str) -> Vec<ChatEvent> {
    vec![ChatEvent::Text(text.to_owned()), ChatEvent::Finished(FinishReason::Stop)]
}

pub(crate) fn calls(calls: &[(&str, &str, &str)], reason: FinishReason) -> Vec<ChatEvent> {
    let delta =
        |(index, (id, name, arguments)): (u32, &(&str, &str, &str))| ChatEvent::ToolCallDelta {
            index: Some(index),
            id: Some((*id).to_owned()),
            name: Some((*name).to_owned()),
            arguments: (*arguments).to_owned(),
        };
    let deltas = (0..).zip(calls).map(delta);
    deltas.chain([ChatEvent::Finished(reason)]).collect()
}

/// Behavior of a [`ProbeTool`].
pub(crate) enum Behavior {
    /// Returns its arguments.
    Echo,
    /// Returns its name after a delay.
    Delay(Duration),
    /// Waits for a permit, then returns its name.
    Gated(Arc<Semaphore>),
    /// Never returns.
    Hang,
    /// Never returns, although it declares to handle its deadline.
    IgnoreCancel,
    /// Returns a text of this size.
    LongText(usize),
    /// Returns a caption and an image with this data.
    Image(&'static str),
    /// Fails.
    Fail,
}

/// A tool that records its calls.
pub(crate) struct ProbeTool {
    registration: ToolRegistration,
    behavior: Behavior,
    pub(crate) contexts: Mutex<Vec<ToolContext>>,
    pub(crate) started: Semaphore,
}

impl ProbeTool {
    pub(crate) fn new(name: &str, behavior: Behavior) -> Arc<Self> {
        Self::with_timeout(name, behavior, None)
    }

    pub(crate) fn with_source(name: &str, source: ToolSource) -> Arc<Self> {
        Self::build(name, Behavior::Echo, None, source)
    }

    pub(crate) fn with_timeout(
        name: &str,
        behavior: Behavior,
        timeout: Option<Duration>,
    ) -> Arc<Self> {
        Self::build(name, behavior, timeout, ToolSource::Internal)
    }

    fn build(
        name: &str,
        behavior: Behavior,
        timeout: Option<Duration>,
        source: ToolSource,
    ) -> Arc<Self> {
        let registration = ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "a test tool".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
            source,
            hints: ToolHints::default(),
            timeout_ms: timeout.map(|timeout| timeout.as_millis().try_into().unwrap()),
        };
        let (contexts, started) = (Mutex::default(), Semaphore::new(0));
        Arc::new(Self { registration, behavior, contexts, started })
    }

    /// Creates an echo tool with this description.
    pub(crate) fn with_description(name: &str, description: &str) -> Arc<Self> {
        let mut probe = Self::new(name, Behavior::Echo);
        let only = Arc::get_mut(&mut probe).expect("not shared yet");
        only.registration.description = description.to_owned();
        probe
    }

    pub(crate) fn as_tool(self: &Arc<Self>) -> Arc<dyn Tool> {
        Arc::new(Shared(self.clone()))
    }

    pub(crate) fn name(&self) -> &str {
        &self.registration.name
    }

    pub(crate) fn calls(&self) -> usize {
        self.contexts.lock().unwrap().len()
    }

    /// Waits for the next call.
    pub(crate) async fn wait_for_call(&self) {
        self.started.acquire().await.unwrap().forget();
    }

    pub(crate) fn token(&self) -> CancellationToken {
        self.contexts.lock().unwrap()[0].cancellation.clone()
    }

    pub(crate) fn ids(&self) -> Vec<ToolCallId> {
        let contexts = self.contexts.lock().unwrap();
        contexts.iter().map(|context| context.tool_call_id.clone()).collect()
    }
}

/// A handle for the registry, while the test keeps the probe.
struct Shared(Arc<ProbeTool>);

impl Tool for Shared {
    fn registration(&self) -> &ToolRegistration {
        &self.0.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        self.0.contexts.lock().unwrap().push(context.clone());
        self.0.started.add_permits(1);
        let name = self.0.registration.name.clone();
        async move {
            match &self.0.behavior {
                Behavior::Echo => return Ok(ToolResult::text(arguments.to_string())),
                Behavior::Delay(time) => tokio::time::sleep(*time).await,
                Behavior::Gated(gate) => gate.acquire().await.unwrap().forget(),
                Behavior::Hang | Behavior::IgnoreCancel => {
                    context.progress("still here");
                    pending::<()>().await;
                }
                Behavior::LongText(bytes) => return Ok(ToolResult::text("x".repeat(*bytes))),
                Behavior::Image(data) => {
                    let mut result = ToolResult::text("a chart");
                    let (data, mime_type) = ((*data).to_owned(), "image/png".to_owned());
                    result.content.push(ContentBlock::Image { data, mime_type });
                    return Ok(result);
                }
                Behavior::Fail => return Err(ToolFailure::failed("the disk is full")),
            }
            Ok(ToolResult::text(format!("{name} is done")))
        }
        .boxed()
    }

    fn enforces_own_deadline(&self) -> bool {
        matches!(self.0.behavior, Behavior::IgnoreCancel)
    }

    fn is_announced(&self) -> bool {
        true
    }
}

/// Settings of an agent named `tester`.
pub(crate) struct AgentFixture {
    pub(crate) definition: AgentDefinition,
    pub(crate) limits: AgentLimits,
    pub(crate) registry: Arc<ToolRegistry>,
    pub(crate) mcp: Option<McpParts>,
    pub(crate) context: Vec<Arc<dyn ContextSource>>,
    pub(crate) behavior: ModelBehavior,
    pub(crate) pins: Option<Arc<ToolPins>>,
    pub(crate) approvals: Option<Arc<Approvals>>,
    pub(crate) conversations: Option<Conversations>,
}

impl AgentFixture {
    pub(crate) fn new() -> Self {
        let name = AgentName::new("tester").unwrap();
        let definition = AgentDefinition::new(name, "Be brief.");
        Self {
            definition,
            limits: AgentLimits::default(),
            registry: Arc::default(),
            mcp: None,
            context: Vec::new(),
            behavior: ModelBehavior::default(),
            pins: None,
            approvals: None,
            conversations: None,
        }
    }

    pub(crate) fn with(self, tool: &Arc<ProbeTool>) -> Self {
        self.registry.register(Arc::new(Shared(tool.clone()))).unwrap();
        self
    }

    pub(crate) fn agent(self, model: &Arc<RecordingModel>) -> Agent {
        let Self {
            definition,
            limits,
            registry,
            mcp,
            context,
            behavior,
            pins,
            approvals,
            conversations,
        } = self;
        let model: Arc<dyn ChatModel> = model.clone();
        let mut parts = AgentParts::new(definition, model, registry);
        if let Some(conversations) = conversations {
            parts.conversations = conversations;
        }
        Agent::new(AgentParts { limits, mcp, context, behavior, pins, approvals, ..parts })
    }
}

pub(crate) fn message(session: &str, text: &str) -> UserMessage {
    let session_id = SessionId::new(session).unwrap();
    UserMessage::new(session_id, text)
}

pub(crate) fn cancel(session: &str) -> UserMessage {
    UserMessage { cancel: true, ..message(session, "") }
}

/// Records the events of a turn.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<TurnEvent>>>);

impl EventLog {
    pub(crate) fn sink(&self) -> ProgressSink {
        let events = self.0.clone();
        Arc::new(move |event| events.lock().unwrap().push(event))
    }

    pub(crate) fn events(&self) -> Vec<TurnEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Returns the recorded approval requests.
    pub(crate) fn approval_requests(&self) -> Vec<ApprovalRequest> {
        let question = |event| match event {
            TurnEvent::ApprovalAsked {
                approval_id,
                tool_name,
                tool_source,
                arguments,
                call_hash,
                ..
            } => Some(ApprovalRequest {
                id: approval_id,
                tool: tool_name,
                source: tool_source,
                arguments,
                hash: call_hash,
            }),
            _ => None,
        };
        self.events().into_iter().filter_map(question).collect()
    }
}

/// An approval request.
pub(crate) struct ApprovalRequest {
    pub(crate) id: ApprovalId,
    pub(crate) tool: String,
    pub(crate) source: String,
    pub(crate) arguments: String,
    pub(crate) hash: String,
}

impl ApprovalRequest {
    pub(crate) fn answer(&self, session: &str, decision: ApprovalDecision) -> ApprovalAnswer {
        ApprovalAnswer {
            session_id: SessionId::new(session).unwrap(),
            approval_id: self.id.clone(),
            call_hash: self.hash.clone(),
            decision,
            reason: None,
        }
    }
}

pub(crate) async fn send(agent: &Agent, text: &str) -> TurnAnswer {
    agent.send(message("s", text), EventLog::default().sink()).await
}

/// Sends a message without waiting for the answer.
pub(crate) fn spawn_send(
    agent: &Agent,
    message: UserMessage,
) -> (JoinHandle<TurnAnswer>, EventLog) {
    let (agent, events) = (agent.clone(), EventLog::default());
    let sink = events.sink();
    (tokio::spawn(async move { agent.send(message, sink).await }), events)
}

/// Returns when every task waits: a paused clock advances only then.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Registers the tools of the members of a team that stays as it is.
pub(crate) fn register_members(team: &Team, registry: &ToolRegistry) {
    for tool in team.list() {
        registry.register(tool).unwrap();
    }
}
