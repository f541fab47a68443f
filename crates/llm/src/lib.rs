//! The chat-model port, a client for OpenAI-compatible servers, and a model that plays a script.
//!
//! Callers hold an `Arc<dyn` [`ChatModel`]`>` and never learn which of the two is behind it:
//! - [`chat`]: the port, the request and the events of an answer;
//! - [`assemble`]: folds the events into one assistant message;
//! - [`error`]: why there is no answer, in variants that a caller acts on;
//! - [`openai`]: OpenAI, OpenRouter, Ollama, llama.cpp and vLLM, told apart by their base URL;
//! - [`tokens`]: how many tokens a text is;
//! - [`scripted`]: turns from a TOML file, for the demo and for tests;
//! - [`config`] and [`resolve`](mod@resolve): which of them a process uses.

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
