//! Ids of requests, and the responses that repeat them.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};

use super::error::A2aError;

/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 255;

/// Id of a request, which its response repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum RpcId {
    Number(Number),
    Text(String),
}

impl RpcId {
    /// Returns whether it is short enough to be repeated in each event of a stream.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Self::Number(_) => true,
            Self::Text(text) => text.len() <= MAX_ID_BYTES,
        }
    }

    /// Returns the response with a result.
    pub(super) fn result(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self, "result": result})
    }

    /// Returns the response with an error.
    pub(super) fn error(&self, error: &A2aError) -> Value {
        json!({"jsonrpc": "2.0", "id": self, "error": error.to_json()})
    }
}
