//! Responses: one message to an agent, and its turn as a response that the next one can continue.

mod object;
mod records;
mod request;
mod stream;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::FutureExt;
use rockbot_agent::ConversationRequestError;
use rockbot_contracts::{MessageId, ReplyBody, conversation::ConversationErrorCode};
use serde_json::json;
use tokio::time::timeout;

use self::{
    object::{ResponseObject, ResponseState, message_of},
    records::ResponseRecord,
    request::ResponseRequest,
    stream::ResponseStream,
};
use super::{
    OpenAi,
    conversation::Place,
    error::ApiError,
    output,
    turn::{AdmittedRequest, FollowedTurn, RecordedRequest, WholeTurn},
};
use crate::{
    clock::now_ms,
    identity::Identity,
    turns::{Followed, Follower, WhenAbandoned},
};

pub(super) use self::records::ResponseRecords;

/// Time limit for an answer that the agent has recorded.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a message that its agent does not have will not reach it: messages expire in its queue earlier.
const LOST_AFTER_S: u64 = 150;

/// Sends the last message of a request to its agent, and returns the response.
///
/// # Errors
/// When the request is invalid, the message is not sent, or, unless a stream is requested, the turn fails.
///
/// # Cancellation
/// Dropping the future, or the body of a stream, abandons the turn.
pub(super) async fn create(
    openai: &OpenAi,
    identity: &Identity,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, ApiError> {
    let request = ResponseRequest::parse(body)?;
    let ResponseRequest { chat, instructions, previous, is_stored, metadata } = request;
    let admitted = AdmittedRequest::admit(openai, identity, headers, body, &chat).await?;
    let place = match &previous {
        None => openai.conversations.find(&admitted.scope, &chat).await,
        Some(id) => {
            let session = continued(openai, identity, &admitted, id).await?.session;
            Place { session, lacks_earlier: !chat.earlier.is_empty(), is_start: false }
        }
    };
    let is_stream = chat.stream;
    let recorded = admitted.record(chat, place).await?;
    let is_continued = previous.is_some();
    let mut object = ResponseObject {
        message: recorded.message().clone(),
        model: recorded.admitted.agent.clone(),
        created_s: now_ms() / 1000,
        instructions,
        previous,
        metadata,
        is_stored,
    };
    if is_stored {
        object.created_s = match store(openai, identity, &recorded, &object).await {
            Ok(created_s) => created_s,
            Err(error) => return Err(recorded.failed(error).await),
        };
    }
    let may_be_sent = recorded.may_be_sent();
    let turn = match recorded.send(!is_continued).await {
        Ok(turn) => turn,
        Err(error) => {
            if is_stored && error.is_unsent() && !may_be_sent {
                // One that remains is not found at its agent.
                let _ = openai.responses.remove(identity, &object.id()).await;
            }
            return Err(error);
        }
    };
    if is_stream {
        Ok(ResponseStream::into_response(turn, object))
    } else {
        whole(turn, &object).await
    }
}

/// Returns the record of the response whose conversation a request continues.
async fn continued(
    openai: &OpenAi,
    identity: &Identity,
    admitted: &AdmittedRequest<'_>,
    id: &str,
) -> Result<ResponseRecord, ApiError> {
    let found = openai.responses.get(identity, id).await;
    let found = match found {
        Ok(found) => found.filter(|found| found.sender == sender(admitted)),
        Err(error) => return Err(admitted.before_record(error).await),
    };
    match found {
        Some(found) => Ok(found),
        None => Err(admitted.before_record(ApiError::unknown_previous_response()).await),
    }
}

/// Returns the id of the sender and the agent of a request.
fn sender(admitted: &AdmittedRequest<'_>) -> String {
    admitted.scope.id("sender", [])
}

/// Records a response, and returns when it was created.
async fn store(
    openai: &OpenAi,
    identity: &Identity,
    recorded: &RecordedRequest<'_>,
    object: &ResponseObject,
) -> Result<u64, ApiError> {
    let record = ResponseRecord {
        agent: object.model.clone(),
        sender: sender(&recorded.admitted),
        session: recorded.session().clone(),
        created_s: object.created_s,
        previous: object.previous.clone(),
        metadata: object.metadata.clone(),
    };
    Ok(openai.responses.begin(identity, &object.id(), record).await?.created_s)
}

/// Waits for the answer.
async fn whole(mut turn: FollowedTurn, object: &ResponseObject) -> Result<Response, ApiError> {
    let WholeTurn { text, outcome, usage, lines } = turn.whole().await?;
    turn.remember(&text).await;
    let mut items = Vec::new();
    if !lines.is_empty() {
        items.push(object.reasoning_item(Some(&lines), "completed"));
    }
    let state = ResponseState::Ended(outcome, usage.as_ref());
    items.push(object.answer_item(Some(&text), state.item_status()));
    Ok(Json(object.to_json(&state, &items)).into_response())
}

/// Returns a response, with its answer if the turn has ended.
///
/// # Errors
/// When the identity has no such response, a stream is requested, or the agent does not respond.
pub(super) async fn show(
    openai: &OpenAi,
    identity: &Identity,
    id: &str,
    query: Option<&str>,
) -> Result<Response, ApiError> {
    if query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=true")) {
        let message =
            "a response is not streamed again; repeat its request with its Idempotency-Key";
        return Err(ApiError::invalid("stream", message).without_effect());
    }
    let message = message_of(id).ok_or_else(ApiError::unknown_response)?;
    let found = openai.responses.get(identity, id).await.map_err(ApiError::without_effect)?;
    let record = found.ok_or_else(ApiError::unknown_response)?;
    if openai.parts.agent_for(identity, record.agent.as_str()).is_none() {
        return Err(ApiError::unknown_response());
    }
    let too_many = || ApiError::too_many_completions().without_effect();
    let _open = openai.open.open(&identity.subject).ok_or_else(too_many)?;
    let found = find(openai, &record, &message).await?;
    let object = ResponseObject {
        message,
        model: record.agent,
        created_s: record.created_s,
        instructions: None,
        previous: record.previous,
        metadata: record.metadata,
        is_stored: true,
    };
    let Some((mut follower, is_answered)) = found else {
        if now_ms() / 1000 > object.created_s + LOST_AFTER_S {
            return Err(ApiError::unknown_response());
        }
        return Ok(Json(object.to_json(&ResponseState::Queued, &[])).into_response());
    };
    let answer = if is_answered {
        let answer = timeout(ANSWER_TIMEOUT, answer(&mut follower)).await;
        let late =
            |_| ApiError::agent_failed("the agent did not repeat the answer in time; try again");
        Some(answer.map_err(late)?)
    } else {
        answer(&mut follower).now_or_never()
    };
    let Some(answer) = answer.transpose()? else {
        return Ok(Json(object.to_json(&ResponseState::InProgress, &[])).into_response());
    };
    let ReplyBody::Answer { text, outcome, usage } = answer else {
        return Err(ApiError::agent_failed("unexpected reply of the agent; try again"));
    };
    let failure = output::failure(&text, outcome);
    let (state, items) = match &failure {
        Some(error) => (ResponseState::Failed(error), Vec::new()),
        None => {
            let state = ResponseState::Ended(outcome, usage.as_ref());
            let item = object.answer_item(Some(&text), state.item_status());
            (state, vec![item])
        }
    };
    Ok(Json(object.to_json(&state, &items)).into_response())
}

/// Follows the turn of a response, and returns whether its answer is recorded; `None` if the agent does not have its
/// message.
async fn find(
    openai: &OpenAi,
    record: &ResponseRecord,
    message: &MessageId,
) -> Result<Option<(Follower, bool)>, ApiError> {
    if let Some(follower) = openai.turns.running(message, Duration::ZERO) {
        return Ok(Some((follower, false)));
    }
    let client = &openai.parts.client;
    let found = client.recorded_message(&record.agent, &record.session, message).await;
    let (recorded, is_answered) = match found {
        Ok(found) => found,
        Err(ConversationRequestError::Refused {
            code: ConversationErrorCode::NotFound, ..
        }) => return Ok(None),
        Err(ConversationRequestError::Send(error)) => {
            return Err(ApiError::from(error).without_effect());
        }
        Err(error) => return Err(ApiError::agent_failed(error.to_string())),
    };
    // Who reads the response again does not cancel its turn.
    let cancels = Arc::new(|| async { false }.boxed());
    let when_abandoned = WhenAbandoned { linger: Duration::ZERO, cancels };
    let follower = openai.turns.follow(&record.agent, recorded, message, when_abandoned);
    let sent = follower.sent().await;
    sent.map_err(|error| ApiError::from(error).without_effect())?;
    Ok(Some((follower, is_answered)))
}

/// Returns the answer of a turn.
async fn answer(follower: &mut Follower) -> Result<ReplyBody, ApiError> {
    loop {
        match follower.next().await {
            Some(Followed::Reply(reply)) if reply.is_final => return Ok(reply.body.clone()),
            Some(Followed::Reply(_) | Followed::Lost(_)) => {}
            Some(Followed::Failed(error)) => return Err(ApiError::from(error).without_effect()),
            None => return Err(ApiError::agent_failed("the agent sent no answer; try again")),
        }
    }
}

/// Removes the record of a response. Its conversation remains with the agent.
///
/// # Errors
/// When the identity has no such response, or the store does not respond.
pub(super) async fn delete(
    openai: &OpenAi,
    identity: &Identity,
    id: &str,
) -> Result<Response, ApiError> {
    let removed = openai.responses.remove(identity, id).await;
    if !removed.map_err(ApiError::without_effect)? {
        return Err(ApiError::unknown_response());
    }
    Ok(Json(json!({"id": id, "object": "response", "deleted": true})).into_response())
}
