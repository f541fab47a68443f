//! The form of the events of a stream in each binding.

use bytes::Bytes;
use serde_json::Value;

use super::{error::A2aError, rpc_id::RpcId};
use crate::event_stream::event;

/// The binding of a stream.
pub(super) enum Binding {
    /// Each event is a response to the request with this id.
    JsonRpc(RpcId),
    HttpJson,
}

impl Binding {
    /// Returns the event with a result.
    pub(super) fn result(&self, result: &Value) -> Bytes {
        match self {
            Self::JsonRpc(id) => event(&id.result(result)),
            Self::HttpJson => event(result),
        }
    }

    /// Returns the event with the error that ends a stream.
    pub(super) fn error(&self, error: &A2aError) -> Bytes {
        match self {
            Self::JsonRpc(id) => event(&id.error(error)),
            Self::HttpJson => {
                Bytes::from(format!("event: error\ndata: {}\n\n", error.to_rest_json()))
            }
        }
    }
}
