//! Checks of requests that are not run.

use rockbot_bus::Bus;
use rockbot_contracts::{
    BindingPattern, Executed, Message, QueueSpec, RoutingKey, ToolErrorCode, ToolInvokeRequest,
    headers::WIRE_VERSION, topology::user_response,
};
use serde_json::json;

use super::{
    check::{Problem, Verdict, failed, skipped},
    messages::Messages,
    prober::{BUDGET, Prober, expect_error, expect_silence},
    subject::Subject,
};

/// A name that no worker should have.
const UNKNOWN_TOOL: &str = "rockbot_worker_check_no_such_tool";

/// Checks the error of an unknown tool.
pub(super) async fn unknown_tool(prober: &Prober) -> Verdict {
    let reply = prober.ask(&prober.call(UNKNOWN_TOOL, "{}", BUDGET)).await?;
    expect_error(&reply, &ToolErrorCode::ToolNotFound, &[Executed::No])
}

/// Checks that the reply probe gets a reply.
pub(super) async fn reply_probe(prober: &Prober) -> Verdict {
    prober.ping().await.map(|()| "replied".to_owned())
}

/// Checks a body that is not JSON.
pub(super) async fn bad_json(prober: &Prober) -> Verdict {
    let call = prober.raw_call(ToolInvokeRequest::TYPE, "{\"toolCallId\": ");
    prober.expect_rejection(&call).await
}

/// Checks a body without required fields.
pub(super) async fn missing_fields(prober: &Prober) -> Verdict {
    let call = prober.raw_call(ToolInvokeRequest::TYPE, r#"{"toolName": 7}"#);
    prober.expect_rejection(&call).await
}

/// Checks a message of another type.
pub(super) async fn wrong_type(prober: &Prober, subject: &Subject) -> Verdict {
    let mut call = prober.call(&subject.tool.name, "{}", BUDGET);
    call.envelope.raw_type = "ToolInvokeWish".into();
    prober.expect_rejection(&call).await
}

/// Checks a message of a newer wire version, whose meaning the worker cannot know.
pub(super) async fn newer_wire(prober: &Prober, subject: &Subject) -> Verdict {
    let mut call = prober.call(&subject.tool.name, "{}", BUDGET);
    call.envelope.wire = WIRE_VERSION + 1;
    prober.expect_rejection(&call).await
}

/// Checks arguments that are not JSON.
pub(super) async fn arguments_not_json(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, "certainly: no JSON", BUDGET);
    let reply = prober.ask(&call).await?;
    expect_error(&reply, &ToolErrorCode::InvalidArguments, &[Executed::No])
}

/// Checks arguments that do not match the schema.
pub(super) async fn invalid_arguments(prober: &Prober, subject: &Subject) -> Verdict {
    let schema = &subject.tool.parameters;
    let arguments = if schema["required"].as_array().is_some_and(|names| !names.is_empty()) {
        json!({})
    } else if schema["additionalProperties"] == false {
        json!({"rockbot_worker_check": true})
    } else {
        return skipped("the schema requires nothing and forbids nothing");
    };
    let call = prober.call(&subject.tool.name, &arguments.to_string(), BUDGET);
    let reply = prober.ask(&call).await?;
    expect_error(&reply, &ToolErrorCode::InvalidArguments, &[Executed::No])
}

/// Checks a request without reply-to: it must not stop the worker.
pub(super) async fn no_reply_to(prober: &Prober, subject: &Subject) -> Verdict {
    let arguments = subject.arguments()?;
    let mut call = prober.call(&subject.tool.name, arguments, BUDGET);
    call.envelope.reply_to = None;
    prober.send(&call).await?;
    prober.ping().await?;
    match prober.replies_so_far(&call)?.first() {
        None => Ok("no reply to this process".to_owned()),
        Some(reply) => failed(format!("the worker guessed an address for {}", reply.outcome)),
    }
}

/// Checks a reply-to outside of the tool results: a worker must not publish there.
pub(super) async fn foreign_reply_to(prober: &Prober, subject: &Subject) -> Verdict {
    let key = user_response(prober.address.instance());
    let mailbox = mailbox(prober.bus.as_ref(), &key).await?;
    let before = prober.dead_letters().await?;
    let arguments = subject.arguments.as_deref().unwrap_or("{}");
    let mut call = prober.call(&subject.tool.name, arguments, BUDGET);
    call.envelope.reply_to = Some(key);
    prober.send(&call).await?;
    prober.ping().await?;
    expect_silence(&mailbox).await?;
    prober.expect_dead_letter(before).await
}

/// Checks a reply-to with more segments than an address has. A broker may refuse the reply and close the
/// channel for it; the worker must go on.
pub(super) async fn odd_reply_to(prober: &Prober) -> Verdict {
    let key = format!("{}.too.long", prober.address.reply_to());
    let key = RoutingKey::new(key).map_err(|error| Problem::Skipped(error.to_string()))?;
    let mut call = prober.call(UNKNOWN_TOOL, "{}", BUDGET);
    call.envelope.reply_to = Some(key);
    prober.send(&call).await?;
    prober.ping().await.map(|()| "the worker goes on".to_owned())
}

async fn mailbox(bus: &dyn Bus, key: &RoutingKey) -> Result<Messages, Problem> {
    let queue = QueueSpec::reply(key, vec![BindingPattern::from(key)]);
    let messages = Messages::collect(bus, queue).await;
    messages.map_err(|error| Problem::Skipped(format!("the address cannot be watched: {error}")))
}
