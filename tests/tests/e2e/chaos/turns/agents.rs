//! Replicas of an agent that share its conversations.

use tokio::process::Command;

use crate::chaos::{
    handlers::{base_settings, program},
    services::Services,
};

pub(super) const REPLICAS: usize = 3;
pub(super) const AGENT: &str = "assistant";
/// Messages that a replica holds at a time: all of a run, while the other replicas are down.
const CONCURRENCY: &str = "256";

/// Returns a launcher of replicas whose model is at `model_url`, see
/// [`Processes::start`](crate::chaos::processes::Processes::start).
pub(super) fn launcher(
    services: &Services,
    conversations: &str,
    model_url: &str,
) -> impl Fn(&str) -> Command + Send + Sync + use<> {
    let base = base_settings(services);
    let (conversations, model_url) = (conversations.to_owned(), model_url.to_owned());
    move |name| {
        let mut command = program("rockbot-agent", name, &base);
        command
            .env("ROCKBOT_LOG__LEVEL", "info,rockbot_agent=debug,rockbot_tool_rpc=debug")
            .env("ROCKBOT_AGENT__NAME", AGENT)
            .env("ROCKBOT_AGENT__CONCURRENCY", CONCURRENCY)
            .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", &conversations)
            .env("ROCKBOT_LLM__BASE_URL", &model_url)
            .env("ROCKBOT_LLM__MODEL", "planned");
        command
    }
}
