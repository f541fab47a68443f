//! Spending with short names, without zeros.

use rockbot_contracts::Spending;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Compact {
    /// Model calls.
    #[serde(rename = "n", skip_serializing_if = "is_0")]
    model_calls: u64,
    #[serde(rename = "p", skip_serializing_if = "is_0")]
    prompt_tokens: u64,
    #[serde(rename = "c", skip_serializing_if = "is_0")]
    completion_tokens: u64,
    #[serde(rename = "u", skip_serializing_if = "is_0")]
    unmetered_calls: u64,
    #[serde(rename = "t", skip_serializing_if = "is_0")]
    tool_calls: u64,
    #[serde(rename = "i", skip_serializing_if = "is_0")]
    tool_bytes_in: u64,
    #[serde(rename = "o", skip_serializing_if = "is_0")]
    tool_bytes_out: u64,
    #[serde(rename = "m", skip_serializing_if = "is_0")]
    cost_micros: u64,
    #[serde(rename = "x", skip_serializing_if = "is_0")]
    unpriced_calls: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_0(count: &u64) -> bool {
    *count == 0
}

pub(super) fn is_zero(spending: &Spending) -> bool {
    *spending == Spending::default()
}

pub(super) fn serialize<S: Serializer>(
    spending: &Spending,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Spending {
        model_calls,
        prompt_tokens,
        completion_tokens,
        unmetered_calls,
        tool_calls,
        tool_bytes_in,
        tool_bytes_out,
        cost_micros,
        unpriced_calls,
    } = *spending;
    Compact {
        model_calls,
        prompt_tokens,
        completion_tokens,
        unmetered_calls,
        tool_calls,
        tool_bytes_in,
        tool_bytes_out,
        cost_micros,
        unpriced_calls,
    }
    .serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Spending, D::Error> {
    let Compact {
        model_calls,
        prompt_tokens,
        completion_tokens,
        unmetered_calls,
        tool_calls,
        tool_bytes_in,
        tool_bytes_out,
        cost_micros,
        unpriced_calls,
    } = Compact::deserialize(deserializer)?;
    Ok(Spending {
        model_calls,
        prompt_tokens,
        completion_tokens,
        unmetered_calls,
        tool_calls,
        tool_bytes_in,
        tool_bytes_out,
        cost_micros,
        unpriced_calls,
    })
}
