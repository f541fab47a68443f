//! Which turn comes next in a conversation, and its events.

use std::{io, time::Duration};

use super::{
    script::{ScriptedCall, ScriptedFailure, ScriptedTurn},
    template::{self, NamedResult},
};
use crate::{
    chat::{ChatEvent, ChatMessage, ChatRequest, FinishReason, ToolChoice, Usage},
    error::{ChatError, TimeoutPhase},
};

type Event = Result<ChatEvent, ChatError>;

/// The events of the next turn, or the failure that the turn asks for.
pub(super) fn play(
    script: &str,
    turns: &[ScriptedTurn],
    request: &ChatRequest,
) -> Result<Vec<Event>, ChatError> {
    let dialogue = Dialogue::of(&request.messages);
    let (number, turn) = next_turn(script, turns, &dialogue)?;
    if let Some(failure) = turn.fail.filter(|fail| *fail != ScriptedFailure::Interrupted) {
        return Err(fail(failure, script, request));
    }
    let text = template::expand(&turn.text, &dialogue.results()).map_err(|problem| {
        let problem = format!("text: {problem}");
        ChatError::Script { script: script.to_owned(), turn: number, problem }
    })?;
    let mut events: Vec<Event> =
        pieces(&text, turn.chunk, true).map(ChatEvent::Text).map(Ok).collect();
    if turn.fail.is_some() {
        events.push(Err(ChatError::Interrupted { source: None }));
        return Ok(events);
    }
    let may_call = request.tool_choice != ToolChoice::None;
    let calls = if may_call { turn.calls.as_slice() } else { &[] };
    let total = request.messages.iter().filter(|message| is_assistant(message)).count();
    for (index, call) in (0..).zip(calls) {
        let id = format!("call_{}_{total}_{index}", request.session);
        events.extend(call_pieces(index, id, call, turn.chunk).map(Ok));
    }
    let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    events.push(Ok(ChatEvent::Usage(estimate(request, &text, calls))));
    events.push(Ok(ChatEvent::Finished(reason)));
    Ok(events)
}

/// What happened since somebody last spoke.
struct Dialogue<'a> {
    user: &'a str,
    since: &'a [ChatMessage],
}

impl<'a> Dialogue<'a> {
    fn of(messages: &'a [ChatMessage]) -> Self {
        let is_user = |message: &ChatMessage| matches!(message, ChatMessage::User(_));
        let Some(last) = messages.iter().rposition(is_user) else {
            return Self { user: "", since: messages };
        };
        let user = match &messages[last] {
            ChatMessage::User(text) => text.as_str(),
            _ => "",
        };
        Self { user, since: &messages[last + 1..] }
    }

    fn answers(&self) -> usize {
        self.since.iter().filter(|message| is_assistant(message)).count()
    }

    /// Results in the order they stand in, each with the tool whose call it answers.
    fn results(&self) -> Vec<NamedResult<'a>> {
        let calls = || {
            self.since.iter().flat_map(|message| match message {
                ChatMessage::Assistant { tool_calls, .. } => tool_calls.as_slice(),
                _ => &[],
            })
        };
        let mut results = Vec::new();
        for message in self.since {
            if let ChatMessage::Tool { tool_call_id, content } = message {
                let call = calls().find(|call| call.id == *tool_call_id);
                let tool = call.map_or("", |call| call.name.as_str());
                results.push(NamedResult { tool, content });
            }
        }
        results
    }
}

fn is_assistant(message: &ChatMessage) -> bool {
    matches!(message, ChatMessage::Assistant { .. })
}

/// The turn and its number in the script, from 1.
fn next_turn<'a>(
    script: &str,
    turns: &'a [ScriptedTurn],
    dialogue: &Dialogue<'_>,
) -> Result<(usize, &'a ScriptedTurn), ChatError> {
    let spoken = dialogue.user.to_lowercase();
    let matches = |when: &str| spoken.contains(&when.to_lowercase());
    let begin =
        turns.iter().position(|turn| turn.when.as_deref().is_some_and(matches)).unwrap_or(0);
    let when = turns.get(begin).and_then(|turn| turn.when.as_deref());
    let is_other_scene = |turn: &ScriptedTurn| turn.when.is_some() && turn.when.as_deref() != when;
    let length = turns[begin..].iter().position(is_other_scene).unwrap_or(turns.len() - begin);
    let missing =
        |turn, problem| Err(ChatError::Script { script: script.to_owned(), turn, problem });
    if when.is_some_and(|when| !matches(when)) || length == 0 {
        let problem = "no turn for this user message; add one without `when` before it".to_owned();
        return missing(begin + 1, problem);
    }
    let position = begin + dialogue.answers();
    if position >= begin + length {
        let problem = format!("the scene ends after {length} turns; add a [[turn]] here");
        return missing(position + 1, problem);
    }
    Ok((position + 1, &turns[position]))
}

fn call_pieces(
    index: u32,
    id: String,
    call: &ScriptedCall,
    chunk: Option<usize>,
) -> impl Iterator<Item = ChatEvent> {
    let begin = ChatEvent::ToolCallDelta {
        index: Some(index),
        id: Some(id),
        name: Some(call.name.clone()),
        arguments: String::new(),
    };
    let more = pieces(&call.arguments, chunk, false).map(move |arguments| {
        ChatEvent::ToolCallDelta { index: Some(index), id: None, name: None, arguments }
    });
    std::iter::once(begin).chain(more)
}

fn pieces(text: &str, chunk: Option<usize>, in_words: bool) -> impl Iterator<Item = String> {
    let pieces: Vec<String> = match chunk {
        Some(size) => {
            let chars: Vec<char> = text.chars().collect();
            chars.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect()
        }
        None if in_words => text.split_inclusive(char::is_whitespace).map(str::to_owned).collect(),
        None => vec![text.to_owned()],
    };
    pieces.into_iter()
}

/// Four characters a token, as a rule of thumb.
fn estimate(request: &ChatRequest, text: &str, calls: &[ScriptedCall]) -> Usage {
    let read: usize = request.messages.iter().map(length).sum();
    let called: usize = calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
    let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
    let completion_tokens = tokens(text.len() + called);
    Usage { prompt_tokens: tokens(read), completion_tokens, cost_micros: None }
}

fn length(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text.len(),
        ChatMessage::Assistant { text, tool_calls } => {
            let calls = tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            text.len() + calls.sum::<usize>()
        }
        ChatMessage::Tool { content, .. } => content.len(),
    }
}

fn fail(failure: ScriptedFailure, script: &str, request: &ChatRequest) -> ChatError {
    let message = "as the script says".to_owned();
    let model = request.model.clone().unwrap_or_else(|| script.to_owned());
    match failure {
        ScriptedFailure::Unauthorized => {
            let hint = "change the script".to_owned();
            ChatError::Unauthorized { status: 401, message, hint }
        }
        ScriptedFailure::ModelNotFound => {
            ChatError::ModelNotFound { model, endpoint: script.to_owned(), message }
        }
        ScriptedFailure::RateLimited => {
            ChatError::RateLimited { message, retry_after: Some(Duration::from_secs(1)) }
        }
        ScriptedFailure::ContextOverflow => ChatError::ContextOverflow { message },
        ScriptedFailure::Rejected => ChatError::Rejected { status: Some(400), message },
        ScriptedFailure::Unreachable => ChatError::Unreachable {
            endpoint: script.to_owned(),
            source: io::Error::from(io::ErrorKind::ConnectionRefused).into(),
        },
        ScriptedFailure::TimedOut => {
            ChatError::TimedOut { phase: TimeoutPhase::Idle, after: Duration::from_secs(60) }
        }
        ScriptedFailure::Interrupted => ChatError::Interrupted { source: None },
        ScriptedFailure::Malformed => ChatError::Malformed { message },
    }
}
