//! The checks against workers that break promises, on the in-memory bus.

use rockbot_bus::{Consumer, MemoryBus, Publication, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, Message, PoolName, QueueSpec, ToolCallId, ToolCatalog, ToolHints, ToolInvokeRequest,
    ToolInvokeResponse, ToolProgress, ToolSource, json::Limits, topology::tool_catalog_announce,
};
use serde_json::json;

use super::*;

fn pool_key() -> RoutingKey {
    HandlerPool::Named(options().pool).invoke_key()
}

fn options() -> WorkerCheck {
    WorkerCheck {
        pool: PoolName::new("tables").unwrap(),
        tool: None,
        arguments: None,
        slow_arguments: None,
        large_arguments: None,
        drain_pid: None,
    }
}

fn target(bus: &MemoryBus) -> Target {
    Target {
        bus: Arc::new(bus.clone()),
        instance: InstanceId::generate(),
        key: pool_key(),
        user: None,
    }
}

fn catalog() -> Envelope {
    let tool = ToolRegistration {
        name: "query".to_owned(),
        label: None,
        description: "Runs a query.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object", "additionalProperties": false}),
        source: ToolSource::Other("tables".to_owned()),
        hints: ToolHints::READ_ONLY,
        timeout_ms: None,
    };
    Envelope::from_payload(&ToolCatalog {
        handler: "tables-worker".to_owned(),
        instance: InstanceId::new("w1").unwrap(),
        fingerprint: ToolCatalog::fingerprint_of(std::slice::from_ref(&tool)),
        tools: vec![tool],
        removed: Vec::new(),
        version: None,
        load: None,
        invoke_key: Some(pool_key()),
        instructions: Vec::new(),
        guides: Vec::new(),
        script_isolation: None,
    })
}

/// Starts a worker that announces one tool every second, and handles requests with `reply`.
async fn start_worker(bus: &MemoryBus, reply: fn(&Envelope) -> Option<Envelope>) -> Tasks {
    start_worker_with(bus, reply, |_| catalog()).await
}

/// Starts a worker that announces the catalog with the number of the second.
async fn start_worker_with(
    bus: &MemoryBus,
    reply: fn(&Envelope) -> Option<Envelope>,
    catalog: fn(u32) -> Envelope,
) -> Tasks {
    let subscription = Subscription::new(QueueSpec::work(&pool_key()), 16);
    let requests = bus.consume(subscription).await.unwrap();
    let announcer = bus.clone();
    let announce = tokio::spawn(async move {
        let mut period = tokio::time::interval(Duration::from_secs(1));
        for number in 0.. {
            period.tick().await;
            let publication = Publication::announcement(tool_catalog_announce(), catalog(number));
            announcer.publish(publication).await.unwrap();
        }
    });
    Tasks([announce, tokio::spawn(serve(bus.clone(), requests, reply))])
}

async fn serve(bus: MemoryBus, mut requests: Consumer, reply: fn(&Envelope) -> Option<Envelope>) {
    while let Some(request) = requests.next().await {
        let envelope = request.envelope();
        if let (Some(reply), Some(to)) = (reply(envelope), envelope.reply_to.clone()) {
            let id = envelope.correlation_id.clone().unwrap_or_default();
            let reply = reply.with_correlation_id(id);
            let _ = bus.publish(Publication::mandatory(to, reply)).await;
        }
        request.settle(Settlement::Ack).await.unwrap();
    }
}

struct Tasks([tokio::task::JoinHandle<()>; 2]);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Returns the names of the checks with this status.
fn names(report: &Report<'_>, status: Status) -> Vec<&'static str> {
    let with_status = report.checks.iter().filter(|check| check.status() == status);
    with_status.map(|check| check.name).collect()
}

/// Replies to everything with a result, in the name of the request where it can be read.
fn agree(request: &Envelope) -> Option<Envelope> {
    let read = request.decode::<ToolInvokeRequest>(Limits::default());
    let id = read.map_or_else(|_| ToolCallId::generate(), |request| request.tool_call_id);
    Some(Envelope::from_payload(&ToolInvokeResponse {
        tool_call_id: id,
        tool_name: "query".to_owned(),
        content: "42".to_owned(),
        is_error: false,
        blocks: Vec::new(),
        details: None,
        child_loop_id: None,
        elapsed_ms: None,
        stages: None,
    }))
}

#[tokio::test(start_paused = true)]
async fn worker_that_accepts_everything_fails_refusals() {
    let bus = MemoryBus::new();
    let _worker = start_worker(&bus, agree).await;
    let options = options();
    let report = check(&target(&bus), &options, Given::default()).await.unwrap();
    let failed = names(&report, Status::Failed);
    let expected = [
        "reply-properties",
        "unknown-tool",
        "arguments-not-json",
        "invalid-arguments",
        "bad-json",
        "missing-fields",
        "wrong-type",
        "newer-wire",
        "foreign-reply-to",
        "expired",
        "cancel-before-start",
    ];
    assert_eq!(failed, expected);
    let ok = names(&report, Status::Ok);
    for name in ["result", "schemas", "heartbeat", "refresh", "concurrent-calls"] {
        assert!(ok.contains(&name), "{name}: {:?}", report.checks);
    }
    let skipped = names(&report, Status::Skipped);
    for name in ["announcement-user", "deadline", "cancel-while-running", "large-result", "drain"] {
        assert!(skipped.contains(&name), "{name}: {:?}", report.checks);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_worker_fails_every_check_of_replies() {
    let bus = MemoryBus::new();
    let _worker = start_worker(&bus, |_| None).await;
    let options = options();
    let report = check(&target(&bus), &options, Given::default()).await.unwrap();
    let ok = names(&report, Status::Ok);
    let announcements = [
        "announcement-names",
        "schemas",
        "hints",
        "instructions",
        "guides",
        "refresh",
        "heartbeat",
        "announcements-readable",
    ];
    assert_eq!(ok, announcements);
    assert!(names(&report, Status::Failed).contains(&"serves-after-all"));
}

#[tokio::test(start_paused = true)]
async fn pool_without_worker_is_unavailable() {
    let options = options();
    let outcome = check(&target(&MemoryBus::new()), &options, Given::default()).await;
    let failure = outcome.err().unwrap();
    assert_eq!(failure.code, exit::UNAVAILABLE);
    assert!(failure.cause.to_string().contains("no worker announced tools"), "{failure:?}");
}

async fn prober(bus: &MemoryBus) -> Prober {
    let target = target(bus);
    let address = ReplyAddress::new(AgentName::new(CLI).unwrap(), target.instance.clone());
    let replies = Messages::collect(bus, address.queue()).await.unwrap();
    Prober { bus: target.bus, address, key: target.key, replies }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_may_not_be_inspected_are_no_success() {
    let bus = MemoryBus::new();
    let prober = prober(&bus).await;
    let verdict = prober.expect_dead_letter(None).await;
    assert!(matches!(verdict, Err(check::Problem::Skipped(_))), "{verdict:?}");
    let verdict = prober.expect_dead_letter(Some(0)).await;
    assert!(matches!(verdict, Err(check::Problem::Failed(_))), "{verdict:?}");
}

#[tokio::test(start_paused = true)]
async fn progress_counts_for_each_run_of_a_call() {
    let bus = MemoryBus::new();
    let prober = prober(&bus).await;
    let id = ToolCallId::generate();
    let mut sent = 0;
    let mut send = async |source: &str, sequence: u64| {
        let progress =
            json!({"toolCallId": id, "toolName": "query", "sequence": sequence, "text": "half"});
        let envelope = Envelope::raw(ToolProgress::TYPE, progress.to_string().into_bytes());
        let envelope = envelope.with_correlation_id(id.clone()).with_source(source);
        let key = prober.address.tool_progress();
        bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
        sent += 1;
        let arrived = |messages: &[messages::Received]| (messages.len() == sent).then_some(());
        prober.replies.wait_for(Duration::from_secs(1), arrived).await.unwrap();
    };
    for (source, sequence) in [("w/1", 1), ("w/1", 2), ("w/2", 1), ("w/1", 3)] {
        send(source, sequence).await;
    }
    assert_eq!(calls::progress(&prober), Ok("4 messages of 2 runs".to_owned()));
    send("w/2", 1).await;
    assert!(matches!(calls::progress(&prober), Err(check::Problem::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn announcement_without_tools_is_no_announcement() {
    let bus = MemoryBus::new();
    let _worker = start_worker_with(&bus, agree, |number| match number {
        0 => catalog(),
        _ => {
            let catalog: ToolCatalog = catalog().decode(Limits::default()).unwrap();
            Envelope::from_payload(&ToolCatalog { tools: Vec::new(), ..catalog })
        }
    })
    .await;
    let options = options();
    let report = check(&target(&bus), &options, Given::default()).await.unwrap();
    let failed = names(&report, Status::Failed);
    for name in ["refresh", "heartbeat"] {
        assert!(failed.contains(&name), "{name}: {:?}", report.checks);
    }
}

#[test]
fn every_check_has_its_own_name_in_the_documentation() {
    let documented = include_str!("../../../../docs/workers.md");
    let source = include_str!("../worker.rs");
    let mut names: Vec<_> = source
        .split("checks.")
        .filter_map(|call| {
            let call = call.strip_prefix("add(").or_else(|| call.strip_prefix("run("))?;
            call.trim_start().strip_prefix('"')?.split('"').next()
        })
        .collect();
    assert!(names.len() >= 30, "{names:?}");
    for name in &names {
        assert!(documented.contains(&format!("`{name}`")), "docs/workers.md lacks {name}");
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}
