//! Spending with short names, without zeros.

use rockbot_contracts::Spending;
use serde::{Deserialize, Serialize};

/// The form of [`Spending`] in entries, which are written for each step of a turn.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Spending")]
pub(super) struct CompactSpending {
    /// Model calls.
    #[serde(rename = "n", default, skip_serializing_if = "is_0")]
    model_calls: u64,
    #[serde(rename = "p", default, skip_serializing_if = "is_0")]
    prompt_tokens: u64,
    #[serde(rename = "c", default, skip_serializing_if = "is_0")]
    completion_tokens: u64,
    #[serde(rename = "u", default, skip_serializing_if = "is_0")]
    unmetered_calls: u64,
    #[serde(rename = "t", default, skip_serializing_if = "is_0")]
    tool_calls: u64,
    #[serde(rename = "i", default, skip_serializing_if = "is_0")]
    tool_bytes_in: u64,
    #[serde(rename = "o", default, skip_serializing_if = "is_0")]
    tool_bytes_out: u64,
    #[serde(rename = "m", default, skip_serializing_if = "is_0")]
    cost_micros: u64,
    #[serde(rename = "x", default, skip_serializing_if = "is_0")]
    unpriced_calls: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_0(count: &u64) -> bool {
    *count == 0
}

pub(super) fn is_zero(spending: &Spending) -> bool {
    *spending == Spending::default()
}
