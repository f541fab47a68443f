//! Checks of calls that run, and of their replies.

use std::collections::BTreeSet;

use rockbot_contracts::{
    ContentTrust, DeliveryMode, Executed, InstanceId, Message, ToolErrorCode, ToolInvokeResponse,
    ToolProgress, interim::is_interim, json::Limits,
};

use super::{
    check::{Problem, Verdict, failed, skipped},
    prober::{BUDGET, Call, Outcome, Prober, Reply, expect_result},
    subject::Subject,
};

/// Size of arguments that every worker accepts, in bytes.
const LARGE_ARGUMENTS: usize = 900 * 1024;

/// Size of arguments that a worker may refuse and must survive, in bytes.
const OVERSIZED_ARGUMENTS: usize = 3 * 1024 * 1024;

/// Calls that are in flight at once.
const CONCURRENT_CALLS: usize = 8;

/// Longest progress text, in bytes.
const MAX_PROGRESS_BYTES: usize = 4096;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";

/// Checks that a call gets its result.
pub(super) async fn result(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.arguments()?, BUDGET);
    let reply = prober.ask(&call).await?;
    let ToolInvokeResponse { tool_call_id, tool_name, content, is_error, .. } =
        expect_result(&reply)?;
    if *tool_call_id != call.id || *tool_name != subject.tool.name {
        return failed("toolCallId and toolName are not those of the request");
    }
    if *is_error {
        return failed("the result has isError; give --arguments of a call that succeeds");
    }
    Ok(format!("{} characters", content.chars().count()))
}

/// Checks the properties and headers of a reply.
pub(super) async fn properties(
    prober: &Prober,
    subject: &Subject,
    instances: &BTreeSet<InstanceId>,
    user: Option<&str>,
) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.arguments()?, BUDGET);
    let Reply { envelope, .. } = prober.ask(&call).await?;
    if envelope.message_type() != ToolInvokeResponse::TYPE {
        return failed(format!("the type is {:?}", envelope.message_type()));
    }
    let instance = envelope.source.as_deref().and_then(|source| source.rsplit_once('/'));
    if !instance.is_some_and(|(_, id)| instances.iter().any(|known| known.as_str() == id)) {
        return failed("rb-source is not SERVICE/INSTANCE of an announced instance");
    }
    if envelope.trust != Some(ContentTrust::ToolOutput) {
        return failed("rb-content-trust is not tool-output");
    }
    if envelope.delivery_mode != DeliveryMode::Persistent {
        return failed("the reply is not persistent (delivery mode 2)");
    }
    if let Some(user) = user.filter(|user| envelope.user_id.as_deref() != Some(user)) {
        return failed(format!("the user id is not {user}"));
    }
    Ok("type, source, trust, delivery mode".to_owned())
}

/// Checks that the reply belongs to the trace of its request.
pub(super) async fn trace(prober: &Prober, subject: &Subject) -> Verdict {
    let mut call = prober.call(&subject.tool.name, subject.arguments()?, BUDGET);
    call.envelope.trace.parent = Some(format!("00-{TRACE_ID}-b7ad6b7169203331-01").into());
    let reply = prober.ask(&call).await?;
    match reply.envelope.trace.parent.as_deref() {
        Some(parent) if parent.contains(TRACE_ID) => Ok("kept".to_owned()),
        Some(_) => failed("the reply belongs to another trace than the request"),
        None => skipped("the reply has no traceparent; handlers without an exporter send none"),
    }
}

/// Checks that fields and headers without a meaning for the worker are ignored.
pub(super) async fn unknown_fields(prober: &Prober, subject: &Subject) -> Verdict {
    let mut call = prober.call(&subject.tool.name, subject.arguments()?, BUDGET);
    let mut body: serde_json::Value = serde_json::from_slice(&call.envelope.body)
        .map_err(|error| Problem::Failed(error.to_string()))?;
    body["fieldOfTheFuture"] = serde_json::json!({"nested": [1, null]});
    call.envelope.body = body.to_string().into_bytes();
    call.envelope.destination = Some("anything".into());
    call.envelope.trace.state = Some("vendor=1".into());
    call.envelope.raw_type = format!("Qualified.Name.{}", call.envelope.raw_type).into();
    expect_result(&prober.ask(&call).await?).map(|_| "ignored".to_owned())
}

/// Checks arguments of 900 KiB.
pub(super) async fn large_arguments(prober: &Prober, subject: &Subject) -> Verdict {
    let padded = padded(subject.arguments()?, LARGE_ARGUMENTS)?;
    let reply = prober.ask(&prober.call(&subject.tool.name, &padded, BUDGET)).await?;
    expect_result(&reply).map(|_| "900 KiB accepted".to_owned())
}

/// Checks arguments of 3 MiB: accepted or refused, but replied to.
pub(super) async fn oversized_arguments(prober: &Prober, subject: &Subject) -> Verdict {
    let padded = padded(subject.arguments()?, OVERSIZED_ARGUMENTS)?;
    let reply = prober.ask(&prober.call(&subject.tool.name, &padded, BUDGET)).await?;
    prober.ping().await?;
    match &reply.outcome {
        Outcome::Result(_) => Ok("3 MiB accepted".to_owned()),
        Outcome::Error(error)
            if error.code == ToolErrorCode::InvalidArguments && error.executed == Executed::No =>
        {
            Ok(format!("3 MiB refused: {}", reply.outcome))
        }
        other => failed(format!("expected a result or invalid_arguments; got {other}")),
    }
}

/// Returns an object with spaces in it, so that it has the given size.
fn padded(arguments: &str, bytes: usize) -> Result<String, Problem> {
    let Some(rest) = arguments.trim_start().strip_prefix('{') else {
        return skipped("the arguments are not an object");
    };
    Ok(format!("{{{}{rest}", " ".repeat(bytes.saturating_sub(rest.len()))))
}

/// Checks that a result over 1 MiB arrives, cut or whole.
pub(super) async fn large_result(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.large()?, BUDGET);
    let reply = prober.ask(&call).await?;
    let bytes = expect_result(&reply)?.content.len();
    prober.ping().await?;
    match bytes {
        0..=0x1_0000 => skipped(format!("the result has {bytes} bytes only")),
        _ => Ok(format!("{} KiB of text", bytes / 1024)),
    }
}

/// Checks that calls in flight at once each get one reply, their own.
pub(super) async fn concurrent_calls(prober: &Prober, subject: &Subject) -> Verdict {
    let arguments = subject.arguments()?;
    let calls: Vec<Call> =
        (0..CONCURRENT_CALLS).map(|_| prober.call(&subject.tool.name, arguments, BUDGET)).collect();
    for call in &calls {
        prober.send(call).await?;
    }
    for call in &calls {
        let reply = prober.reply_to(call).await?;
        if expect_result(&reply)?.tool_call_id != call.id {
            return failed("a reply has the correlation id of another call");
        }
    }
    prober.ping().await?;
    for call in &calls {
        let replies = prober.replies_so_far(call)?.len();
        if replies != 1 {
            return failed(format!("{replies} replies to one call"));
        }
    }
    Ok(format!("{CONCURRENT_CALLS} calls"))
}

/// Checks all progress that was sent for the calls so far.
pub(super) fn progress(prober: &Prober) -> Verdict {
    let mut count = 0;
    let mut last = std::collections::BTreeMap::new();
    for message in prober.replies.so_far() {
        let envelope = &message.envelope;
        if !is_interim(envelope.message_type()) {
            continue;
        }
        let progress: ToolProgress = match envelope.decode(Limits::default()) {
            Ok(progress) => progress,
            Err(error) => return failed(format!("progress cannot be read: {error}")),
        };
        if envelope.correlation_id.as_deref() != Some(progress.tool_call_id.as_str()) {
            return failed("the correlation id of progress is not its toolCallId");
        }
        let text = progress.text.or(progress.partial).unwrap_or_default();
        if text.len() > MAX_PROGRESS_BYTES {
            return failed(format!("a progress text has {} bytes, over 4 KiB", text.len()));
        }
        // A call that was delivered again may run in another instance, which counts from 1 too.
        let run = (progress.tool_call_id, envelope.source.clone());
        let previous = last.insert(run, progress.sequence).unwrap_or(0);
        if progress.sequence <= previous {
            return failed("sequence numbers of progress do not increase from 1");
        }
        count += 1;
    }
    match count {
        0 => skipped("the tool sent no progress"),
        _ => Ok(format!("{count} messages of {} runs", last.len())),
    }
}
