//! Execution of a call: its attempts, its deadline, and its outcome.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderValue};
use rockbot_egress::{ConnectionSignal, EgressError, read_prefix};
use rockbot_tools::{Executed, ToolContext, ToolFailure, ToolResult};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, warn};

use super::{
    attempt::{Reply, SendError, default_headers, location, send},
    client::RestClient,
    description::{describe, status_line},
    exposure::Exposure,
    redaction::Redaction,
    retry_after::retry_after,
    tokens::Token,
    verdict::{RequestFailure, Verdict, judge, judge_last},
};
use crate::{
    config::CallSettings,
    metrics,
    request::RequestParts,
    response::{ReceivedResponse, next_page},
    secrets::Secrets,
    stream,
};

/// Maximum size of the body of an unsuccessful response that is reported, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// One call of a REST tool.
pub(crate) struct Execution<'a> {
    /// Client of the process.
    pub(crate) client: &'a RestClient,
    /// Label of metrics: the entry of the configuration.
    pub(crate) tool_set: &'a Arc<str>,
    /// Settings of the tool.
    pub(crate) settings: &'a CallSettings,
    /// Secrets of the tool.
    pub(crate) secrets: &'a Secrets,
    /// Context of the call.
    pub(crate) context: &'a ToolContext,
}

/// State of a running call.
struct CallState<'a> {
    exposure: Exposure,
    redaction: Redaction<'a>,
}

/// A failed attempt, with the response if there was one.
struct FailedAttempt {
    failure: RequestFailure,
    reply: Option<Box<Reply>>,
}

/// Error of an attempt.
enum AttemptError {
    /// The attempt failed; another one may succeed.
    Failed(FailedAttempt),
    /// The request cannot be sent, now or later.
    Final(ToolFailure),
}

impl Execution<'_> {
    /// Sends the request, with retries where they are safe, and returns the result for the model.
    ///
    /// # Errors
    /// See [`ToolFailure`]. A response that reports an error is a result.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection. On cancellation and at the deadline it completes with a
    /// failure.
    pub(crate) async fn run(&self, parts: &RequestParts) -> Result<ToolResult, ToolFailure> {
        let state =
            CallState { exposure: Exposure::default(), redaction: Redaction::new(self.secrets) };
        let exposure = &state.exposure;
        let started = Instant::now();
        let deadline = self.context.deadline.min(started + self.settings.timeout);
        let outcome = tokio::select! {
            biased;
            () = self.context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: exposure.executed() })
            }
            outcome = timeout_at(deadline, self.attempts(parts, &state, deadline)) => {
                outcome.unwrap_or_else(|_| {
                    if exposure.is_running() {
                        metrics::count_request(self.tool_set, metrics::Outcome::Timeout);
                    }
                    Err(self.timed_out(started.elapsed(), exposure.executed()))
                })
            }
        };
        let outcome = match outcome {
            Ok(result) => Ok(state.redaction.result(result)),
            Err(failure) => Err(state.redaction.failure(failure)),
        };
        outcome.map_err(|failure| match exposure.executed() {
            Executed::No => failure,
            _ => failure.into_possibly_executed(),
        })
    }

    async fn attempts(
        &self,
        parts: &RequestParts,
        state: &CallState<'_>,
        deadline: Instant,
    ) -> Result<ToolResult, ToolFailure> {
        let CallState { exposure, redaction } = state;
        let mut headers = default_headers(parts, self.settings.stream.is_some());
        if let Some(name) = &self.settings.idempotency_key {
            // Every delivery of the call sends the same key, so the server can recognize a repetition.
            let key = HeaderValue::from_str(self.context.tool_call_id.as_str());
            headers.insert(
                name.clone(),
                key.map_err(|_| {
                    ToolFailure::failed(
                        "the id of the call is not valid in a header; notify an operator",
                    )
                })?,
            );
        }
        let (mut retries, mut rejected) = (0, None);
        loop {
            let token = self.token(parts, rejected.as_ref(), &mut headers).await?;
            if let Some(token) = &token {
                redaction.add(token);
            }
            let signal = exposure.begin();
            let attempt = self.attempt(parts, &headers, &signal, redaction).await;
            let FailedAttempt { failure, reply } = match attempt {
                Ok(result) => return Ok(result),
                Err(AttemptError::Failed(failed)) => failed,
                Err(AttemptError::Final(failure)) => {
                    exposure.end(false);
                    return Err(failure);
                }
            };
            exposure.end(failure.may_have_run());
            if token.is_some()
                && rejected.is_none()
                && matches!(failure, RequestFailure::Status(401, _))
            {
                rejected = token;
                continue;
            }
            let mut verdict = judge(failure, self.settings.is_repeatable, retries);
            if let Verdict::Retry(delay) = verdict {
                let delay = with_jitter(delay);
                if Instant::now() + delay < deadline {
                    retries += 1;
                    metrics::count_retry(self.tool_set);
                    self.context.progress(format!("{}; retrying", describe(failure)));
                    sleep(delay).await;
                    continue;
                }
                verdict = judge_last(failure, self.settings.is_repeatable);
            }
            return self.conclude(verdict, failure, reply.map(|reply| *reply), redaction).await;
        }
    }

    /// Puts the token of an OAuth client into the headers.
    async fn token(
        &self,
        parts: &RequestParts,
        rejected: Option<&Arc<Token>>,
        headers: &mut HeaderMap,
    ) -> Result<Option<Arc<Token>>, ToolFailure> {
        let Some(credentials) = &parts.credentials else { return Ok(None) };
        let token = self.client.tokens.token(credentials, rejected).await?;
        let (name, value) = token.header();
        headers.insert(name, value);
        Ok(Some(token))
    }

    /// Sends the request once.
    async fn attempt(
        &self,
        parts: &RequestParts,
        headers: &HeaderMap,
        signal: &ConnectionSignal,
        redaction: &Redaction<'_>,
    ) -> Result<ToolResult, AttemptError> {
        let client = self.client.sender(self.settings.is_repeatable);
        let sent = send(client, parts, headers, signal).await;
        let host = parts.url.host_str().unwrap_or_default();
        let reply = match sent {
            Ok(reply) => reply,
            Err(error) => {
                debug!(tool_set = &**self.tool_set, host, error = %error.error, "request failed");
                metrics::count_request(self.tool_set, error.failure().outcome());
                return Err(match self.final_failure(&error) {
                    Some(failure) => AttemptError::Final(failure),
                    None => {
                        let failure = error.failure();
                        AttemptError::Failed(FailedAttempt { failure, reply: None })
                    }
                });
            }
        };
        let status = reply.response.status();
        debug!(tool_set = &**self.tool_set, host, status = status.as_u16(), "response received");
        if !status.is_success() {
            let wait = retry_after(reply.response.headers(), SystemTime::now());
            let failure = RequestFailure::Status(status.as_u16(), wait);
            metrics::count_request(self.tool_set, failure.outcome());
            return Err(AttemptError::Failed(FailedAttempt {
                failure,
                reply: Some(Box::new(reply)),
            }));
        }
        let read = match &self.settings.stream {
            Some(config) if stream::is_stream(config, &reply.response) => {
                self.read_stream(config, reply, redaction).await
            }
            _ => self.read_body(reply, self.settings.max_response_bytes, redaction).await,
        };
        let outcome =
            read.as_ref().map_or_else(|failure| failure.outcome(), |_| metrics::Outcome::Ok);
        metrics::count_request(self.tool_set, outcome);
        read.map_err(|failure| AttemptError::Failed(FailedAttempt { failure, reply: None }))
    }

    async fn read_body(
        &self,
        reply: Reply,
        max_bytes: usize,
        redaction: &Redaction<'_>,
    ) -> Result<ToolResult, RequestFailure> {
        let Reply { response, url } = reply;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_prefix(response, max_bytes, None)
            .await
            .map_err(|error| request_failure(&error))?;
        let received = ReceivedResponse {
            status,
            headers: &headers,
            body: &body.bytes,
            is_complete: body.is_complete,
            next_page: next_page(&headers, &url),
        };
        let mut result = received.into_result(self.settings.select.as_deref());
        if !body.is_complete || result.is_error {
            redaction.trim_cut(&mut result);
        }
        Ok(result)
    }

    async fn read_stream(
        &self,
        config: &stream::StreamConfig,
        reply: Reply,
        redaction: &Redaction<'_>,
    ) -> Result<ToolResult, RequestFailure> {
        let tokens = redaction.tokens();
        let tokens = tokens.iter().map(|token| &token.secrets);
        let secrets: Vec<_> = tokens.chain([self.secrets]).collect();
        let updates = stream::Updates::new(self.context, &secrets);
        let max_bytes = self.settings.max_response_bytes;
        let read = stream::read(config, reply.response, max_bytes, updates).await;
        let mut result = read.map_err(|error| request_failure(&error))?;
        // Text that is followed by a note, or ends with an error, may be cut within a secret.
        if result.is_error || result.content.len() > 1 {
            redaction.trim_cut(&mut result);
        }
        Ok(result)
    }

    /// Returns the failure of the call if the request cannot be sent, now or later.
    fn final_failure(&self, error: &SendError) -> Option<ToolFailure> {
        match &error.error {
            EgressError::Refused(reason) => {
                warn!(tool_set = &**self.tool_set, %reason, "request not permitted");
                let reason =
                    "the address of the API is not permitted by [rest]; notify an operator";
                Some(ToolFailure::NotPermitted { reason: reason.to_owned() })
            }
            EgressError::Invalid(_) => {
                Some(ToolFailure::invalid("the arguments do not form a valid request"))
            }
            _ => None,
        }
    }

    async fn conclude(
        &self,
        verdict: Verdict,
        failure: RequestFailure,
        reply: Option<Reply>,
        redaction: &Redaction<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        let description = describe(failure);
        Err(match verdict {
            Verdict::Report | Verdict::CredentialsRefused | Verdict::Retry(_) => {
                return Ok(self.report(verdict, reply, redaction).await);
            }
            Verdict::Unreachable => ToolFailure::Unavailable {
                message: "the API cannot be reached; nothing was sent; try again later".to_owned(),
                executed: Executed::No,
            },
            Verdict::Unavailable => ToolFailure::Unavailable {
                message: format!("{description}; the call may be repeated"),
                executed: Executed::Unknown,
            },
            Verdict::TimedOut => self.timed_out(self.settings.timeout, Executed::Unknown),
            Verdict::Overloaded(wait) => ToolFailure::Overloaded {
                message: match wait {
                    Some(wait) => {
                        format!("{description}; call again in {} s", wait.as_secs().max(1))
                    }
                    None => format!("{description}; call again later"),
                },
            },
            Verdict::OutcomeUnknown => ToolFailure::OutcomeUnknown {
                message: format!(
                    "{description}; check whether it took effect before calling again"
                ),
            },
        })
    }

    /// Reports an unsuccessful response with its body, so that the model can correct its call.
    async fn report(
        &self,
        verdict: Verdict,
        reply: Option<Reply>,
        redaction: &Redaction<'_>,
    ) -> ToolResult {
        let Some(reply) = reply else { return ToolResult::error("the API did not respond") };
        let status = reply.response.status();
        let mut first = status_line(status);
        if verdict == Verdict::CredentialsRefused {
            first.push_str(": the API refuses our credentials for this call");
        }
        if status.is_redirection() {
            let to = location(&reply.response, &reply.url);
            let to = to.filter(|to| to.origin() == reply.url.origin());
            if let Some(to) = to {
                first = format!("{first}: moved to {}", to.path());
            }
            return ToolResult::error(first);
        }
        let max_bytes = self.settings.max_response_bytes.min(MAX_ERROR_BYTES);
        let body = self.read_body(reply, max_bytes, redaction).await.unwrap_or_default();
        let body = body.to_text();
        ToolResult::error(if body.is_empty() { first } else { format!("{first}\n{body}") })
    }

    fn timed_out(&self, after: Duration, executed: Executed) -> ToolFailure {
        ToolFailure::TimedOut { after, executed, repeatable: self.settings.is_repeatable }
    }
}

fn request_failure(error: &EgressError) -> RequestFailure {
    match error {
        EgressError::TimedOut => RequestFailure::Silent,
        _ => RequestFailure::Broken,
    }
}

fn with_jitter(delay: Duration) -> Duration {
    delay + delay.mul_f64(rand::random_range(0.0..0.2))
}
