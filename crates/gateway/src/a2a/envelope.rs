//! The form of the events of a stream in each binding.

use bytes::Bytes;
use serde_json::Value;

use super::{error::A2aError, rpc_id::RpcId};
use crate::event_stream::event;

/// The wrapping of an event of a stream.
pub(super) enum Envelope {
    /// A response of JSON-RPC.
    Rpc(RpcId),
    /// Nothing, as HTTP+JSON has it.
    Plain,
}

impl Envelope {
    /// Returns the event with a result.
    pub(super) fn result(&self, result: &Value) -> Bytes {
        match self {
            Self::Rpc(id) => event(&id.result(result)),
            Self::Plain => event(result),
        }
    }

    /// Returns the event with the error that ends a stream.
    pub(super) fn error(&self, error: &A2aError) -> Bytes {
        match self {
            Self::Rpc(id) => event(&id.error(error)),
            Self::Plain => Bytes::from(format!("event: error\ndata: {}\n\n", error.to_rest_json())),
        }
    }
}
