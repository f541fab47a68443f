//! `rockbot up`: the fleet in this process until stopped.

use rockbot_llm::LlmConfigError;
use rockbot_service::{Shutdown, exit};

use crate::{
    ending::{Exits, Failure, Outcome},
    fleet::Fleet,
    host::Host,
    print::note,
    settings::Settings,
};

pub(crate) async fn run(settings: &Settings) -> Outcome {
    let shutdown = Shutdown::on_signal().exits(exit::SOFTWARE)?;
    let definition = settings.agent.definition().map_err(Failure::usage)?;
    let model = match rockbot_llm::resolve(&settings.llm, &|name| std::env::var(name).ok()) {
        Ok(resolved) => Some(resolved),
        Err(LlmConfigError::NotConfigured) => None,
        Err(error) => return Err(error).exits(exit::USAGE),
    };
    let fleet = Fleet::embed(settings).await?;
    note!("tool handler: serving files below {}", settings.files.root.display());
    let host = match model {
        Some(resolved) => {
            let name = definition.name.clone();
            let host = Host::start(&fleet, settings, definition, resolved.model).await?;
            note!("agent: {name}, model {}", resolved.origin);
            Some(host)
        }
        None => {
            note!("agent: none, since no model is configured; `rockbot chat` says how");
            None
        }
    };
    if settings.embeds() {
        note!("bus: in memory, so only this process reaches it; --bus amqp://… joins a broker");
    }
    note!("ready; Ctrl-C or SIGTERM stops");
    shutdown.requested().await;
    if let Some(host) = host {
        host.stop(settings.service.drain()).await;
    }
    fleet.leave().await;
    Ok(exit::OK)
}
