//! Responses whose results have other forms than those that rmcp reads.

use rmcp::model::RequestId;
use serde::Deserialize;

/// A response with a result of the form `R`.
#[derive(Deserialize)]
pub(crate) struct RawResponse<R> {
    pub(crate) id: RequestId,
    pub(crate) result: R,
}
