//! The chat-model port, a client for OpenAI-compatible servers, and a model that plays a script.
//!
//! Callers hold an `Arc<dyn` [`ChatModel`]`>` and do not know which implementation is behind it:
//! - [`chat`]: the port, the request and the events of an answer;
//! - [`adapted`]: requests that fit the [`capabilities`] of a model: calls in texts, notes for unread media;
//! - [`media`]: images and audio in conversations;
//! - [`assemble`]: folds the events into one assistant message;
//! - [`error`]: errors, with a variant for each way that a caller can react;
//! - [`openai`]: OpenAI, OpenRouter, Ollama, llama.cpp and vLLM, distinguished by their base URL;
//! - [`tokens`]: token counts of texts;
//! - [`scripted`]: turns from a TOML file, for the demo and for tests;
//! - [`config`] and [`resolve`](mod@resolve): the selection of the model that a process uses.

pub mod adapted;
pub mod assemble;
pub mod capabilities;
pub mod chat;
pub mod config;
pub mod error;
mod json_depth;
pub mod media;
mod media_messages;
pub mod openai;
mod readable_arguments;
pub mod resolve;
pub mod scripted;
mod text_calls;
mod tiers;
pub mod tokens;

pub use adapted::AdaptedModel;
pub use assemble::{AssembledAnswer, Assembler};
pub use capabilities::{ModelCapabilities, ToolCallMode};
pub use chat::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason, ToolCallRequest,
    ToolChoice, ToolDefinition, Usage,
};
pub use config::{LlmConfig, LlmConfigError, Provider};
pub use error::{ChatError, TimeoutPhase};
pub use media::{Media, MediaError, MediaKind};
pub use openai::{KeySource, OpenAiModel, OpenAiSettings};
pub use resolve::{ResolvedModel, resolve};
pub use scripted::{ScriptError, ScriptedCall, ScriptedFailure, ScriptedModel, ScriptedTurn};
pub use tiers::{ModelTier, ModelTiers};
pub use tokens::TokenCounter;
