//! Requests of tools as messages, for tests that send copies of a request and read every reply.

use std::{fs, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Consumer, Publication, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, Executed, Message, SessionId, ToolCallId, ToolCancel, ToolError, ToolErrorCode,
    ToolInvokeRequest, ToolInvokeResponse, ToolProgress,
    json::Limits,
    topology::{ReplyAddress, tool_cancel, tool_invoke},
};
use rockbot_testkit::fixture::{next_delivery, reply_address, within_timeout};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{fleet::Fleet, process::Running};

/// Type of the message after all replies.
const LAST: &str = "Last";

/// A fleet, and a caller of it that sends requests by itself.
pub(crate) struct Requests {
    pub(crate) fleet: Fleet,
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    replies: Consumer,
}

/// A reply to a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) call: ToolCallId,
    pub(crate) executed: Executed,
    /// The text of a result, or the code of an error.
    pub(crate) outcome: Result<String, ToolErrorCode>,
}

impl Reply {
    fn from_envelope(envelope: &Envelope) -> Self {
        if envelope.message_type() == ToolInvokeResponse::TYPE {
            let result: ToolInvokeResponse = envelope.decode(Limits::default()).expect("a result");
            let ToolInvokeResponse { tool_call_id: call, content, .. } = result;
            return Self { call, executed: Executed::Yes, outcome: Ok(content) };
        }
        let error: ToolError = envelope.decode(Limits::default()).expect("an error");
        let ToolError { tool_call_id: call, code, executed, .. } = error;
        Self { call, executed, outcome: Err(code) }
    }

    /// Returns the code of an error with what it claims.
    pub(crate) fn error(&self) -> (ToolErrorCode, Executed) {
        let code = self.outcome.as_ref().expect_err("an error");
        (code.clone(), self.executed)
    }
}

impl Requests {
    pub(crate) async fn start() -> Self {
        let fleet = Fleet::new();
        let bus = fleet.bus(|_| {}).await;
        let address = reply_address("caller", "1");
        let replies = Subscription::new(address.queue(), 16);
        let replies = within_timeout("subscribe", bus.consume(replies)).await.expect("subscribed");
        Self { fleet, bus, address, replies }
    }

    /// Starts a handler that runs one call at a time, holds `backlog` more, and logs what it waits for.
    pub(crate) async fn handler(
        &self,
        instance: &str,
        backlog: &str,
        settings: &[(&str, &str)],
    ) -> Running {
        let own = [
            ("ROCKBOT_STORE__SHARED", "true"),
            ("ROCKBOT_HANDLER__CONCURRENCY", "1"),
            ("ROCKBOT_HANDLER__BACKLOG", backlog),
            ("ROCKBOT_LOG__LEVEL", "info,rockbot_tool_rpc=debug"),
        ];
        let settings = [own.as_slice(), settings].concat();
        self.fleet.handler_with(instance, &settings).await
    }

    /// Returns the first request of a new call of `bash`.
    pub(crate) fn command(&self, command: &str, timeout: Duration) -> Envelope {
        // By default, a command is stopped after 30 s.
        let arguments = json!({"command": command, "timeout_seconds": 120});
        self.request("bash", &arguments, timeout)
    }

    /// Returns the first request of a new call.
    pub(crate) fn request(&self, tool: &str, arguments: &Value, timeout: Duration) -> Envelope {
        let request = ToolInvokeRequest {
            tool_call_id: ToolCallId::generate(),
            tool_name: tool.to_owned(),
            arguments: arguments.to_string(),
            session_id: SessionId::generate(),
        };
        Envelope::from_payload(&request)
            .with_correlation_id(request.tool_call_id.as_str())
            .with_source("caller")
            .reply_to(self.address.tool_result())
            .within(timeout)
    }

    pub(crate) async fn send(&self, request: &Envelope) {
        let publication = Publication::mandatory(tool_invoke(), request.clone());
        within_timeout("publish", self.bus.publish(publication)).await.expect("confirmed");
    }

    /// Sends the request again, as a caller does that had no reply.
    pub(crate) async fn resend(&self, request: &Envelope) {
        self.send(&request.clone().next_attempt()).await;
    }

    /// Cancels a call.
    pub(crate) async fn cancel(&self, request: &Envelope, timeout: Duration) {
        let cancel = ToolCancel { tool_call_id: call_of(request), reason: "on purpose".to_owned() };
        let cancel = Publication::announcement(
            tool_cancel(),
            Envelope::from_payload(&cancel).within(timeout),
        );
        within_timeout("publish", self.bus.publish(cancel)).await.expect("confirmed");
    }

    /// Returns the next reply.
    pub(crate) async fn reply(&mut self) -> Reply {
        Reply::from_envelope(&self.next_message().await)
    }

    /// Returns all replies until the next one to this call.
    pub(crate) async fn replies_until(&mut self, request: &Envelope) -> Vec<Reply> {
        let mut replies = vec![self.reply().await];
        while replies.last().is_some_and(|reply| reply.call != call_of(request)) {
            replies.push(self.reply().await);
        }
        replies
    }

    /// Stops the handlers after their calls, and returns the replies that were not read yet. A request whose
    /// ack was lost at the end of a handler is settled by another one.
    pub(crate) async fn stop(
        &mut self,
        mut handlers: Vec<Running>,
        settings: &[(&str, &str)],
    ) -> Vec<Reply> {
        loop {
            self.wait_until_delivered().await;
            for handler in handlers.drain(..) {
                handler.send(Signal::TERM);
                handler.wait().await.assert_code(0);
            }
            if self.fleet.waiting_and_dead(&self.bus).await == (0, 0) {
                break;
            }
            handlers.push(self.handler("handler-last", "8", settings).await);
        }
        let last = Envelope::raw(LAST, b"null".to_vec());
        let last = Publication::mandatory(self.address.tool_result(), last);
        within_timeout("publish", self.bus.publish(last)).await.expect("confirmed");
        let mut replies = Vec::new();
        loop {
            let message = self.next_message().await;
            if message.raw_type.as_ref() == LAST {
                return replies;
            }
            replies.push(Reply::from_envelope(&message));
        }
    }

    /// Waits until no queue has a request that no handler holds.
    pub(crate) async fn wait_until_delivered(&self) {
        self.fleet.wait_until_delivered(&self.bus).await;
    }

    /// Returns the lines of a file, in which each run writes one.
    pub(crate) fn runs(&self, file: &str) -> usize {
        fs::read_to_string(self.fleet.path(file)).unwrap_or_default().lines().count()
    }

    /// Returns the next message except for progress.
    async fn next_message(&mut self) -> Envelope {
        loop {
            let delivery = next_delivery(&mut self.replies).await;
            let envelope = delivery.envelope().clone();
            within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
            if envelope.message_type() != ToolProgress::TYPE {
                return envelope;
            }
        }
    }
}

/// Returns the call of a request.
pub(crate) fn call_of(request: &Envelope) -> ToolCallId {
    let request: ToolInvokeRequest = request.decode(Limits::default()).expect("a request");
    request.tool_call_id
}
