//! Names of entry points in the log.

use rockbot_tools::EntryPoint;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

fn name(entry: EntryPoint) -> &'static str {
    match entry {
        EntryPoint::UserTurn => "user_turn",
        EntryPoint::Subagent => "subagent",
        EntryPoint::ScheduledTask => "scheduled_task",
        EntryPoint::A2aResult => "a2a_result",
        EntryPoint::A2aError => "a2a_error",
        EntryPoint::A2aInputRequired => "a2a_input_required",
        EntryPoint::LateA2aReply => "late_a2a_reply",
        EntryPoint::SubagentResult => "subagent_result",
        EntryPoint::A2aTask => "a2a_task",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
pub(super) fn serialize<S: Serializer>(
    entry: &EntryPoint,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name(*entry))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<EntryPoint, D::Error> {
    let text = String::deserialize(deserializer)?;
    let known = EntryPoint::ALL.into_iter().find(|entry| name(*entry) == text);
    known.ok_or_else(|| D::Error::custom("unknown entry point"))
}
