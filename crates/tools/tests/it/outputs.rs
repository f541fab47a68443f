//! Storage of large results, and truncation when the store is unavailable.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, ContentBlock, SessionId};
use rockbot_store::{
    Clock, Entry, Expected, Key, ManualClock, MemoryStore, Prefix, Store, StoreError, Timestamp,
    Write, Written,
};
use rockbot_tools::{
    LayerOptions, Outputs, OutputsSection, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure,
    ToolHints, ToolOutput, ToolRegistration, ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};

const CAP: usize = 100_000;

/// Returns a text of several megabytes.
struct Verbose(ToolRegistration, String);

impl Tool for Verbose {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async { Ok(ToolResult::text(self.1.clone())) })
    }
}

fn registration(name: &str) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: "returns a long text".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object", "properties": {}}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

fn executor(registry: Arc<ToolRegistry>, outputs: Arc<Outputs>) -> ToolExecutor {
    let outputs = Some(outputs);
    let layers = LayerOptions { max_result_bytes: CAP, outputs, ..LayerOptions::default() };
    ToolExecutor::with_layers(registry, layers)
}

/// A process with a tool that returns `text`, and with outputs in `store`.
struct Process {
    executor: ToolExecutor,
    session: SessionId,
    agent: AgentName,
}

impl Process {
    fn new(store: Arc<dyn Store>, section: OutputsSection, text: &str) -> Self {
        let outputs = Outputs::new(store, section);
        let registry = Arc::new(ToolRegistry::new());
        registry.register(Arc::new(Verbose(registration("verbose"), text.to_owned()))).unwrap();
        registry.register(Arc::new(ToolOutput::new(outputs.clone()))).unwrap();
        let executor = executor(registry, outputs);
        let agent = AgentName::new("assistant").unwrap();
        Self { executor, session: SessionId::new("s1").unwrap(), agent }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, ToolFailure> {
        let context = ToolContext::new(tool, self.session.clone(), self.agent.clone());
        let call = ToolCall { context, arguments: arguments.to_string().into() };
        self.executor.execute(call).await.map(|result| result.to_text().into_owned())
    }

    /// Returns the text that the model receives in place of the result.
    async fn notice(&self) -> String {
        self.call("verbose", json!({})).await.unwrap()
    }

    async fn handle(&self) -> String {
        parse_handle(&self.notice().await)
    }

    async fn read(&self, handle: &str, mode: Value) -> Result<String, ToolFailure> {
        let mut arguments = mode;
        arguments["handle"] = json!(handle);
        self.call("tool_output", arguments).await
    }
}

fn parse_handle(notice: &str) -> String {
    let facts: Value = serde_json::from_str(notice.lines().next().unwrap()).unwrap();
    facts["tool_output"]["handle"].as_str().unwrap().to_owned()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Clock::System))
}

/// Returns numbered lines with headings, about 3 MB.
fn document() -> String {
    let mut text = String::new();
    for section in 1..=30 {
        text.push_str(&format!("# Section {section}\n"));
        for line in 1..2000 {
            text.push_str(&format!(
                "line {line} of section {section}, für alle Fälle, and more of it\n"
            ));
        }
    }
    text
}

#[tokio::test]
async fn stored_result_is_readable_from_another_process() {
    let (store, text) = (memory(), document());
    let writer = Process::new(store.clone(), OutputsSection::default(), &text);
    let reader = Process::new(store, OutputsSection::default(), "");
    let notice = writer.notice().await;
    assert!(notice.len() < 5000, "{} bytes", notice.len());
    let facts: Value = serde_json::from_str(notice.lines().next().unwrap()).unwrap();
    let facts = &facts["tool_output"];
    assert_eq!((&facts["bytes"], &facts["lines"]), (&json!(text.len()), &json!(60_000)));
    assert_eq!(facts["reason"], "size_limit_exceeded");
    assert!(notice.contains("- **Section 30** → line 58001 ("), "{notice}");

    let handle = parse_handle(&notice);
    let lines: Vec<_> = text.lines().collect();
    let read = reader.read(&handle, json!({"mode": "lines", "from": 58_001, "count": 3})).await;
    let expected = lines[58_000..58_003].join("\n");
    assert_eq!(
        read.unwrap(),
        format!("[lines 58001 to 58003 of 60000; continue with from = 58004]\n{expected}\n")
    );
    let read = reader.read(&handle, json!({"mode": "tail", "count": 2})).await.unwrap();
    let expected = lines[59_998..].join("\n");
    assert_eq!(read, format!("[lines 59999 to 60000 of 60000; the end]\n{expected}\n"));
    let read = reader.read(&handle, json!({"mode": "head", "count": 1})).await.unwrap();
    assert!(read.ends_with("\n# Section 1\n"), "{read}");
    let grep = json!({"mode": "grep", "pattern": "line 7 of section (8|9),"});
    let read = reader.read(&handle, grep).await.unwrap();
    assert!(read.contains("14008: line 7 of section 8"), "{read}");
    assert!(read.contains("16008: line 7 of section 9"), "{read}");
    let outline = reader.read(&handle, json!({"mode": "outline"})).await.unwrap();
    assert!(notice.ends_with(&outline));
    let pointer = reader.read(&handle, json!({"mode": "json_pointer", "pointer": "/a"})).await;
    assert!(pointer.unwrap_err().to_string().contains("not JSON"));
}

#[tokio::test]
async fn continued_reads_return_whole_text() {
    let text = document();
    let process = Process::new(memory(), OutputsSection::default(), &text);
    let handle = process.handle().await;
    for (mode, unit, first) in [("lines", "chars", 1), ("range", "chars", 0), ("range", "bytes", 0)]
    {
        let (mut from, mut whole) = (first, String::new());
        loop {
            let mut arguments = json!({"mode": mode, "unit": unit, "from": from});
            if mode == "lines" {
                arguments["count"] = json!(1_000_000);
            }
            let read = process.read(&handle, arguments).await.unwrap();
            assert!(read.len() <= 12 * 1024);
            let (header, part) = read.split_once('\n').unwrap();
            whole.push_str(part);
            let Some((_, next)) = header.split_once("from = ") else { break };
            from = next.trim_end_matches(']').parse().unwrap();
        }
        assert!(whole == text, "{mode} by {unit} lost or duplicated text");
    }
}

#[tokio::test]
async fn json_values_are_read_by_pointer() {
    let models: Vec<_> =
        (0..20_000).map(|id| json!({"id": id, "name": format!("m{id}")})).collect();
    let text = json!({"models": models, "total": 20_000}).to_string();
    let process = Process::new(memory(), OutputsSection::default(), &text);
    let notice = process.notice().await;
    assert!(notice.contains("\"models\": array, 20000 items"), "{notice}");
    let handle = parse_handle(&notice);
    let mode = |pointer: &str| json!({"mode": "json_pointer", "pointer": pointer});
    let read = process.read(&handle, mode("/models/12345/name")).await.unwrap();
    assert_eq!(read, "\"m12345\"");
    let read = process.read(&handle, mode("/models")).await.unwrap();
    assert!(read.contains("array, 20000 items") && read.len() <= 12 * 1024, "{read}");
}

#[tokio::test]
async fn forged_expired_and_foreign_handles_fail_alike() {
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::from(&clock)));
    let text = "x".repeat(2 * CAP);
    let process = Process::new(store.clone(), OutputsSection::default(), &text);
    let handle = process.handle().await;
    let head = json!({"mode": "head"});
    assert!(process.read(&handle, head.clone()).await.is_ok());

    let other_session = Process {
        session: SessionId::new("s2").unwrap(),
        ..Process::new(store.clone(), OutputsSection::default(), "")
    };
    let other_agent = Process {
        agent: AgentName::new("intruder").unwrap(),
        ..Process::new(store, OutputsSection::default(), "")
    };
    let mut results = vec![
        process.read("out-0123456789abcdef0123456789abcdef", head.clone()).await,
        process.read("../../outputs", head.clone()).await,
        other_session.read(&handle, head.clone()).await,
        other_agent.read(&handle, head.clone()).await,
    ];
    clock.advance(Duration::from_secs(3601));
    results.push(process.read(&handle, head).await);
    let texts: Vec<_> =
        results.into_iter().map(|result| result.unwrap_err().model_text()).collect();
    assert!(texts[0].contains("no such output"), "{texts:?}");
    assert!(texts.iter().all(|one| *one == texts[0]), "{texts:?}");
}

#[tokio::test]
async fn oldest_outputs_are_removed_and_named() {
    let text = "x".repeat(400_000);
    let section = OutputsSection { session_outputs: 2, ..OutputsSection::default() };
    let process = Process::new(memory(), section, &text);
    let (first, second) = (process.handle().await, process.handle().await);
    let notice = process.notice().await;
    assert!(notice.contains("1 older outputs") && notice.contains(&first), "{notice}");
    assert!(!notice.contains(&second));
    let head = json!({"mode": "head"});
    assert!(process.read(&first, head.clone()).await.is_err());
    assert!(process.read(&second, head).await.is_ok());

    let section = OutputsSection { session_bytes: 1024 * 1024, ..OutputsSection::default() };
    let process = Process::new(memory(), section, &text);
    let first = process.handle().await;
    process.handle().await;
    assert!(process.notice().await.contains(&first), "the third output exceeds the quota");
}

#[tokio::test]
async fn handle_mode_stores_larger_results() {
    let section = OutputsSection { handle_mode: true, ..OutputsSection::default() };
    let small = Process::new(memory(), section.clone(), &"x".repeat(12 * 1024));
    assert_eq!(small.notice().await.len(), 12 * 1024);
    let larger = Process::new(memory(), section, &"x".repeat(12 * 1024 + 1));
    let handle = larger.handle().await;
    let read = larger.read(&handle, json!({"mode": "range", "from": 0})).await.unwrap();
    assert!(read.len() > 11_000 && !read.contains("tool_output"), "a response is not stored");
}

/// A store that is unavailable, or that never replies.
struct BrokenStore {
    replies: bool,
}

impl BrokenStore {
    async fn fail<T>(&self) -> Result<T, StoreError> {
        if !self.replies {
            std::future::pending::<()>().await;
        }
        Err(StoreError::Unavailable { reason: "unavailable".to_owned() })
    }
}

impl Store for BrokenStore {
    fn get<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        Box::pin(self.fail())
    }

    fn write(&self, _: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        Box::pin(self.fail())
    }

    fn remove<'a>(&'a self, _: &'a Key, _: Expected) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.fail())
    }

    fn list<'a>(
        &'a self,
        _: &'a Prefix,
        _: Option<&'a Key>,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        Box::pin(self.fail())
    }

    fn sweep(&self, _: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.fail())
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(self.fail())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(start_paused = true)]
async fn store_outage_truncates_results() {
    for replies in [true, false] {
        let store = Arc::new(BrokenStore { replies });
        let process = Process::new(store, OutputsSection::default(), &"ü".repeat(CAP));
        let notice = process.notice().await;
        assert!(notice.len() <= CAP);
        assert!(notice.ends_with("chars omitted]"), "{}", &notice[notice.len() - 100..]);
        let handle = "out-0123456789abcdef0123456789abcdef";
        let read = process.read(handle, json!({"mode": "head"})).await.unwrap_err();
        assert_eq!(read.model_text(), "(tool failed: the output cannot be read; try again)");
    }
}

#[tokio::test]
async fn result_over_quota_is_truncated_and_image_kept() {
    let section = OutputsSection { session_bytes: 1024 * 1024, ..OutputsSection::default() };
    let process = Process::new(memory(), section, &"x".repeat(1024 * 1024 + 1));
    assert!(process.notice().await.ends_with("chars omitted]"));

    let outputs = Outputs::new(memory(), OutputsSection::default());
    let registry = Arc::new(ToolRegistry::new());
    registry.register(Arc::new(TextAndImage(registration("image")))).unwrap();
    let executor = executor(registry, outputs);
    let agent = AgentName::new("assistant").unwrap();
    let context = ToolContext::new("image", SessionId::generate(), agent);
    let call = ToolCall { context, arguments: "{}".into() };
    let content = executor.execute(call).await.unwrap().content;
    assert!(matches!(&content[..], [ContentBlock::Text { .. }, ContentBlock::Image { .. }]));
}

/// Returns a long text and a small image.
struct TextAndImage(ToolRegistration);

impl Tool for TextAndImage {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let image = ContentBlock::Image { data: "x".into(), mime_type: "image/png".into() };
        let mut result = ToolResult::text("x".repeat(2 * CAP));
        result.content.push(image);
        Box::pin(std::future::ready(Ok(result)))
    }
}
