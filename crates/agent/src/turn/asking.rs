//! How a turn asks its model: with what fits, and again with less when it was too much.

use futures_util::StreamExt;
use rockbot_llm::{
    AssembledAnswer, Assembler, ChatError, ChatEvent, ChatMessage, ChatRequest, ToolChoice,
    ToolDefinition,
};
use tokio::time::sleep_until;
use tracing::{Instrument, info};

use super::{Ending, Turn, room::Room};
use crate::{
    event::TurnEvent,
    telemetry::{self, Question},
};

/// Said to the model when it has used up its calls. It goes into the system prompt: many servers
/// take a system message nowhere else.
const NO_MORE_TOOLS: &str = "You have used all the tool calls of this turn, so no tool can be \
    called now. Answer with what you have, and say what is left undone.";

/// Said to the model when a result did not fit into what it can read.
const NO_MORE_ROOM: &str = "You can't read more in this turn, so no tool can be called now. Answer \
    with what you have, and say what is left undone.";

/// Tokens of either of them.
const NOTE_TOKENS: usize = 48;

/// How often one question is asked again with less to read. Each time about half of it
/// goes.
const MOST_TRIMS: u32 = 8;

impl Turn<'_> {
    /// Asks the model; again with less to read, when it says that it was too much.
    pub(super) async fn ask(&mut self, tool_choice: ToolChoice) -> Result<AssembledAnswer, Ending> {
        let mut trims = 0;
        loop {
            let looked = async { Ok(self.setup.tools(self.session_id, &self.scope).await) };
            let (tools, names) = self.in_time(looked).await?;
            self.names = names;
            let counted = self.fit(&tools);
            let request = self.request(tool_choice, tools);
            match self.in_time(self.receive(request)).await {
                Err(Ending::ModelFailed(ChatError::ContextOverflow { .. }))
                    if trims < MOST_TRIMS && self.history.trim() =>
                {
                    info!(session_id = %self.session_id, "the conversation was too long; trimmed it");
                    self.setup.room.learn_overflow();
                    trims += 1;
                }
                Ok(answer) => {
                    if let Some(usage) = answer.usage {
                        self.setup.room.learn(counted, usage.prompt_tokens);
                    }
                    return Ok(answer);
                }
                Err(ending) => return Err(ending),
            }
        }
    }

    /// Makes the conversation fit beside the rest of a request, and returns the tokens of both.
    fn fit(&mut self, tools: &[ToolDefinition]) -> usize {
        let fixed = self.context_tokens + Room::of_tools(tools) + NOTE_TOKENS;
        self.room_for_history = self.setup.room.beside(fixed);
        if let Some(most) = self.room_for_history {
            self.history.fit_tokens(most);
        }
        fixed + self.history.tokens()
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, ChatError>>,
    ) -> Result<T, Ending> {
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Err(Ending::Cancelled),
            () = sleep_until(self.deadline) => Err(self.out_of_time(false)),
            done = work => done.map_err(Ending::ModelFailed),
        }
    }

    fn request(&self, tool_choice: ToolChoice, tools: Vec<ToolDefinition>) -> ChatRequest {
        let definition = &self.setup.definition;
        let mut prompt = self.context.system.clone();
        if tool_choice == ToolChoice::None {
            prompt.push_str("\n\n");
            prompt.push_str(if self.is_out_of_room { NO_MORE_ROOM } else { NO_MORE_TOOLS });
        }
        let mut messages = Vec::with_capacity(self.history.messages().len() + 1);
        messages.push(ChatMessage::System(prompt));
        messages.extend(self.history.messages().cloned());
        let last_said = messages.iter_mut().rev().find_map(|message| match message {
            ChatMessage::User(text) => Some(text),
            _ => None,
        });
        if let (Some(said), Some(passing)) = (last_said, &self.context.passing) {
            said.push_str("\n\n");
            said.push_str(passing);
        }
        ChatRequest {
            model: definition.model.clone(),
            messages,
            // Also when none may be called: servers want to know the tools of earlier calls.
            tools,
            tool_choice,
            max_tokens: self.setup.room.answer_tokens(definition.max_tokens),
            temperature: definition.temperature,
            session: self.session_id.to_string(),
        }
    }

    async fn receive(&self, request: ChatRequest) -> Result<AssembledAnswer, ChatError> {
        let model = request.model.clone().unwrap_or_else(|| self.setup.model.name().to_owned());
        let span = telemetry::chat(&model, self.session_id);
        let question = Question::begin(&span, &model);
        let answer = self.listen(request).instrument(span.clone()).await;
        question.ended(&answer);
        answer
    }

    async fn listen(&self, request: ChatRequest) -> Result<AssembledAnswer, ChatError> {
        let mut events = self.setup.model.stream(request).await?;
        let mut assembler = Assembler::new();
        while let Some(event) = events.next().await {
            let event = event?;
            let piece = if let ChatEvent::Text(text) = &event { Some(text.clone()) } else { None };
            assembler.push(event)?;
            if let Some(text) = piece.filter(|text| !text.is_empty()) {
                (self.progress)(TurnEvent::TextDelta { text });
            }
        }
        let answer = assembler.finish()?;
        self.account.model_answered(answer.usage, &self.setup.behaviour);
        Ok(answer)
    }
}
