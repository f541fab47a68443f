//! Selection of the next turn of a conversation, and its events.

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

/// Returns the events of the next turn, or its scripted failure.
pub(super) fn play(
    script: &str,
    turns: &[ScriptedTurn],
    request: &ChatRequest,
) -> Result<Vec<Event>, ChatError> {
    let dialogue = Dialogue::new(&request.messages);
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
    let assistant_count = request.messages.iter().filter(|message| is_assistant(message)).count();
    for (index, call) in (0..).zip(calls) {
        let id = format!("call_{}_{assistant_count}_{index}", request.session);
        events.extend(call_pieces(index, id, call, turn.chunk).map(Ok));
    }
    let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    events.push(Ok(ChatEvent::Usage(estimate(request, &text, calls))));
    events.push(Ok(ChatEvent::Finished(reason)));
    Ok(events)
}

/// The last user message and the messages after it.
struct Dialogue<'a> {
    user: &'a str,
    messages: &'a [ChatMessage],
}

impl<'a> Dialogue<'a> {
    fn new(messages: &'a [ChatMessage]) -> Self {
        let is_user = |message: &ChatMessage| matches!(message, ChatMessage::User(_));
        let Some(last) = messages.iter().rposition(is_user) else {
            return Self { user: "", messages };
        };
        let user = match &messages[last] {
            ChatMessage::User(text) => text.as_str(),
            _ => "",
        };
        Self { user, messages: &messages[last + 1..] }
    }

    /// Returns the number of assistant messages.
    fn answers(&self) -> usize {
        self.messages.iter().filter(|message| is_assistant(message)).count()
    }

    /// Returns the results in order, each with the tool of its call.
    fn results(&self) -> Vec<NamedResult<'a>> {
        let calls = || {
            self.messages.iter().flat_map(|message| match message {
                ChatMessage::Assistant { tool_calls, .. } => tool_calls.as_slice(),
                _ => &[],
            })
        };
        let mut results = Vec::new();
        for message in self.messages {
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

/// Returns the next turn and its number in the script, from 1.
fn next_turn<'a>(
    script: &str,
    turns: &'a [ScriptedTurn],
    dialogue: &Dialogue<'_>,
) -> Result<(usize, &'a ScriptedTurn), ChatError> {
    let user_text = dialogue.user.to_lowercase();
    let matches = |when: &str| user_text.contains(&when.to_lowercase());
    let start =
        turns.iter().position(|turn| turn.when.as_deref().is_some_and(matches)).unwrap_or(0);
    let when = turns.get(start).and_then(|turn| turn.when.as_deref());
    let is_other_scene = |turn: &ScriptedTurn| turn.when.is_some() && turn.when.as_deref() != when;
    let length = turns[start..].iter().position(is_other_scene).unwrap_or(turns.len() - start);
    let missing =
        |turn, problem| Err(ChatError::Script { script: script.to_owned(), turn, problem });
    if when.is_some_and(|when| !matches(when)) || length == 0 {
        let problem =
            "no turn matches the user message; add a turn without `when` at the start".to_owned();
        return missing(start + 1, problem);
    }
    let position = start + dialogue.answers();
    if position >= start + length {
        let problem = format!("the scene ends after {length} turns; add a [[turn]] here");
        return missing(position + 1, problem);
    }
    Ok((position + 1, &turns[position]))
}

/// Splits a call into events: id and name first, then the arguments.
fn call_pieces(
    index: u32,
    id: String,
    call: &ScriptedCall,
    chunk: Option<usize>,
) -> impl Iterator<Item = ChatEvent> {
    let first = ChatEvent::ToolCallDelta {
        index: Some(index),
        id: Some(id),
        name: Some(call.name.clone()),
        arguments: String::new(),
    };
    let rest = pieces(&call.arguments, chunk, false).map(move |arguments| {
        ChatEvent::ToolCallDelta { index: Some(index), id: None, name: None, arguments }
    });
    std::iter::once(first).chain(rest)
}

fn pieces(text: &str, chunk: Option<usize>, by_word: bool) -> impl Iterator<Item = String> {
    let pieces: Vec<String> = match chunk {
        Some(size) => {
            let chars: Vec<char> = text.chars().collect();
            chars.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect()
        }
        None if by_word => text.split_inclusive(char::is_whitespace).map(str::to_owned).collect(),
        None => vec![text.to_owned()],
    };
    pieces.into_iter()
}

/// Estimates usage at four bytes per token.
fn estimate(request: &ChatRequest, text: &str, calls: &[ScriptedCall]) -> Usage {
    let prompt_bytes: usize = request.messages.iter().map(length).sum();
    let call_bytes: usize = calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
    let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
    let completion_tokens = tokens(text.len() + call_bytes);
    Usage { prompt_tokens: tokens(prompt_bytes), completion_tokens, cost_micros: None }
}

fn length(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text.len(),
        ChatMessage::Assistant { text, tool_calls } => {
            let calls = tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            text.len() + calls.sum::<usize>()
        }
        ChatMessage::Tool { content, .. } => content.len(),
        ChatMessage::Media(media) => media.iter().map(|media| 4 * media.estimated_tokens()).sum(),
    }
}

fn fail(failure: ScriptedFailure, script: &str, request: &ChatRequest) -> ChatError {
    let message = "scripted failure".to_owned();
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
