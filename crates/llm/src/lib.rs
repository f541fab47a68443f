//! The chat-model port, a client for OpenAI-compatible servers, and a model that plays a script.
//!
//! Callers hold an `Arc<dyn` [`ChatModel`]`>` and do not know which implementation is behind it:
//! - [`chat`]: the port, the request and the events of an answer;
//! - [`assemble`]: folds the events into one assistant message;
//! - [`error`]: errors, with a variant for each way that a caller can react;
//! - [`openai`]: OpenAI, OpenRouter, Ollama, llama.cpp and vLLM, distinguished by their base URL;
//! - [`tokens`]: token counts of texts;
//! - [`scripted`]: turns from a TOML file, for the demo and for tests;
//! - [`config`] and [`resolve`](mod@resolve): the selection of the model that a process uses.

pub mod assemble;
pub mod chat;
pub mod config;
pub mod error;
pub mod openai;
pub mod resolve;
pub mod scripted;
pub mod tokens;

pub use assemble::{AssembledAnswer, Assembler};
pub use chat::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason, ToolCallRequest,
    ToolChoice, ToolDefinition, Usage,
};
pub use config::{LlmConfig, LlmConfigError, Provider};
pub use error::{ChatError, TimeoutPhase};
pub use openai::{KeySource, OpenAiModel, OpenAiSettings};
pub use resolve::{ResolvedModel, resolve};
pub use scripted::{ScriptError, ScriptedCall, ScriptedFailure, ScriptedModel, ScriptedTurn};
pub use tokens::TokenCounter;
