//! Requests to the model, shortened to fit its context window.

use futures_util::StreamExt;
use rockbot_llm::{
    AssembledAnswer, Assembler, ChatError, ChatEvent, ChatMessage, ChatRequest, ToolChoice,
    ToolDefinition,
};
use rockbot_tools::{BudgetError, budget::ModelCall};
use tokio::time::sleep_until;
use tracing::{Instrument, info};

use super::{StopReason, Turn, token_budget::TokenBudget};
use crate::{
    event::TurnEvent,
    telemetry::{self, ChatMeasurement},
    tool_names::FINAL_REPORT,
};

/// Instruction after the last permitted tool call. It is part of the system prompt, because many servers
/// accept no system message elsewhere.
const NO_MORE_TOOLS: &str = "You have used all the tool calls of this turn, so no tool can be \
    called now. Answer with what you have, and list the unfinished work.";

/// Instruction after a tool result that did not fit into the context window.
const CONTEXT_EXHAUSTED: &str = "You can't read more in this turn, so no tool can be called now. Answer \
    with what you have, and list the unfinished work.";

/// Instruction when the budget of the message is used up.
const NO_MORE_BUDGET: &str = "The budget of this request is used up, so no tool can be called now. Answer \
    with what you have, and list the unfinished work.";

/// Size of each instruction, in tokens.
const NOTE_TOKENS: usize = 48;

/// Maximum number of retries with a shorter conversation. Each retry drops about half of it.
const MAX_TRIMS: u32 = 8;

impl Turn<'_> {
    /// Requests an answer. Retries with a shorter conversation if the model rejects it as too long.
    pub(super) async fn call_model(
        &mut self,
        tool_choice: ToolChoice,
    ) -> Result<AssembledAnswer, StopReason> {
        let mut trims = 0;
        loop {
            let listing = async { Ok(self.setup.tools(self.session_id, &self.scope).await) };
            let (tools, names) = self.with_deadline(listing).await?;
            self.names = names;
            let counted = self.fit(&tools);
            let checked = self.check_budget(tool_choice, counted);
            checked.map_err(|error| StopReason::BudgetExceeded(error, None))?;
            let mut request = self.request(tool_choice, tools);
            if tool_choice == ToolChoice::None {
                self.offer_report_alone(&mut request);
            }
            match self.with_deadline(self.request_answer(request)).await {
                Err(StopReason::ModelFailed(ChatError::ContextOverflow { .. }))
                    if trims < MAX_TRIMS && self.history.trim() =>
                {
                    info!(session_id = %self.session_id, "context window exceeded; conversation trimmed");
                    self.setup.token_budget.record_overflow();
                    trims += 1;
                }
                Ok(answer) => {
                    if let Some(usage) = answer.usage {
                        self.setup.token_budget.calibrate(counted, usage.prompt_tokens);
                    }
                    return Ok(answer);
                }
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Checks that the budget has a model call with about `tokens` tokens left.
    fn check_budget(&self, tool_choice: ToolChoice, tokens: usize) -> Result<(), BudgetError> {
        let call = match tool_choice {
            ToolChoice::None => ModelCall::Answer,
            _ => ModelCall::WithTools,
        };
        self.meter.budget().check_model_call(call, tokens)
    }

    /// Shortens the conversation to what fits beside the rest of the request. Returns the tokens of the
    /// whole request.
    fn fit(&mut self, tools: &[ToolDefinition]) -> usize {
        let fixed = self.context_tokens + TokenBudget::estimate_tools(tools) + NOTE_TOKENS;
        self.setup.report_narrow_window(self.setup.token_budget.narrow_window(fixed));
        self.history_budget = self.setup.token_budget.history_tokens(fixed);
        if let Some(most) = self.history_budget {
            self.history.fit_tokens(most);
        }
        fixed + self.history.tokens()
    }

    /// Lets a last request answer with a final report, if the agent gives one.
    fn offer_report_alone(&self, request: &mut ChatRequest) {
        let is_report = |tool: &ToolDefinition| self.setup.is_internal(&tool.name, FINAL_REPORT);
        if request.tools.iter().any(is_report) {
            request.tools.retain(is_report);
            request.tool_choice = ToolChoice::Auto;
        }
    }

    async fn with_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, ChatError>>,
    ) -> Result<T, StopReason> {
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Err(StopReason::Cancelled),
            () = self.handover.cancelled() => Err(StopReason::Released),
            () = sleep_until(self.deadline) => Err(self.timed_out(false)),
            done = work => done.map_err(StopReason::ModelFailed),
        }
    }

    fn request(&self, tool_choice: ToolChoice, tools: Vec<ToolDefinition>) -> ChatRequest {
        let definition = &self.setup.definition;
        let mut prompt = self.context.system.clone();
        if tool_choice == ToolChoice::None {
            prompt.push_str("\n\n");
            prompt.push_str(match (self.context_exhausted, self.budget_exceeded) {
                (true, _) => CONTEXT_EXHAUSTED,
                (false, true) => NO_MORE_BUDGET,
                (false, false) => NO_MORE_TOOLS,
            });
        }
        let mut messages = Vec::with_capacity(self.history.messages().len() + 1);
        messages.push(ChatMessage::System(prompt));
        messages.extend(self.history.messages().cloned());
        let last_user_message = messages.iter_mut().rev().find_map(|message| match message {
            ChatMessage::User(text) => Some(text),
            _ => None,
        });
        if let (Some(text), Some(transient)) = (last_user_message, &self.context.transient) {
            text.push_str("\n\n");
            text.push_str(transient);
        }
        ChatRequest {
            model: self.step_model().or(definition.model.as_ref()).cloned(),
            messages,
            // Also for `ToolChoice::None`: servers require the tools of earlier calls.
            tools,
            tool_choice,
            max_tokens: self.setup.token_budget.answer_tokens(definition.max_tokens),
            temperature: definition.temperature,
            session: self.session_id.to_string(),
        }
    }

    /// Returns the model that replaces that of the agent.
    fn step_model(&self) -> Option<&String> {
        self.origin.step.as_ref()?.model.as_ref()
    }

    async fn request_answer(&self, request: ChatRequest) -> Result<AssembledAnswer, ChatError> {
        let model = request.model.clone().unwrap_or_else(|| self.setup.model.name().to_owned());
        let span = telemetry::chat(&model, self.session_id);
        let measurement = ChatMeasurement::start(&span, &model);
        let answer = self.collect_answer(request).instrument(span.clone()).await;
        measurement.finish(&answer);
        answer
    }

    async fn collect_answer(&self, request: ChatRequest) -> Result<AssembledAnswer, ChatError> {
        let mut events = self.setup.model.stream(request).await?;
        // The price of another model is not known here.
        let behavior = match self.step_model() {
            Some(_) => &self.setup.unpriced,
            None => &self.setup.behavior,
        };
        let mut call = self.meter.start_model_call(behavior);
        let mut assembler = Assembler::new();
        while let Some(event) = events.next().await {
            let event = event?;
            if let ChatEvent::Usage(usage) = &event {
                call.usage = Some(*usage);
            }
            let delta = if let ChatEvent::Text(text) = &event { Some(text.clone()) } else { None };
            assembler.push(event)?;
            if let Some(text) = delta.filter(|text| !text.is_empty()) {
                (self.progress)(TurnEvent::TextDelta { text });
            }
        }
        assembler.finish()
    }
}
