//! A model that plays turns from a script, for the demo and for tests without a server.
//!
//! ```toml
//! [[turn]]
//! text = "Let me look."
//! [[turn.call]]
//! name = "list_files"
//! arguments = { path = "." }
//!
//! [[turn]]
//! text = "The folder holds: {{result.list_files}}"
//! ```
//!
//! The model keeps no state. The number of assistant messages after the last user message selects the
//! next turn, so one script serves any number of conversations, and each user message restarts it. A
//! turn with `when` starts a scene for user messages that contain that text; the turns after it, up to
//! the next different `when`, continue it. Turns before the first `when` are the scene for all other
//! messages.

mod play;
mod script;
mod template;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use futures_util::{
    future::{self, BoxFuture},
    stream::{self, StreamExt},
};

use crate::{
    chat::{ChatModel, ChatRequest, ChatStream},
    error::ChatError,
};
pub use script::{ScriptedCall, ScriptedFailure, ScriptedTurn};

/// The largest script, in bytes.
const MAX_SCRIPT_BYTES: u64 = 1024 * 1024;

/// Why a script is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read the script {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not a script.
    #[error("script {script}: {problem}")]
    Unreadable {
        /// The script's name or file.
        script: String,
        /// The problem and its position.
        problem: String,
    },
    /// A turn is invalid.
    #[error("script {script}, turn {turn}: {problem}")]
    Turn {
        /// The script's name or file.
        script: String,
        /// The turn, from 1.
        turn: usize,
        /// The problem, with the key.
        problem: String,
    },
}

/// A model that plays a script.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    name: String,
    turns: Vec<ScriptedTurn>,
}

impl ScriptedModel {
    /// Creates a model that plays these turns, named `scripted`.
    #[must_use]
    pub fn new(turns: impl IntoIterator<Item = ScriptedTurn>) -> Self {
        Self { name: "scripted".to_owned(), turns: turns.into_iter().collect() }
    }

    /// Parses a script. Errors refer to it as `name`.
    ///
    /// # Errors
    /// When it is invalid TOML, has no turns, or has an invalid turn.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ScriptError> {
        Ok(Self { name: name.to_owned(), turns: script::parse(name, text)? })
    }

    /// Reads a script from a file, once.
    ///
    /// # Errors
    /// See [`Self::from_toml`]; also when the file cannot be read or exceeds 1 MiB.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_SCRIPT_BYTES + 1).read_to_string(&mut text))
            .map_err(|source| ScriptError::Read { path: path.to_owned(), source })?;
        let name = path.display().to_string();
        if text.len() as u64 > MAX_SCRIPT_BYTES {
            let problem = format!("it is larger than {MAX_SCRIPT_BYTES} bytes");
            return Err(ScriptError::Unreadable { script: name, problem });
        }
        Self::from_toml(&name, &text)
    }
}

impl ChatModel for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let events = play::play(&self.name, &self.turns, &request);
        Box::pin(future::ready(events.map(|events| stream::iter(events).boxed())))
    }
}
