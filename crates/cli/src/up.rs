//! `rockbot up`: runs an embedded fleet until stopped.

use rockbot_llm::LlmConfigError;
use rockbot_service::{Shutdown, exit};

use crate::{
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    host::Host,
    print::note,
    settings::Settings,
    stored_conversations::ConversationStores,
};

pub(crate) async fn run(settings: &Settings) -> Outcome {
    let shutdown = Shutdown::on_signal().or_exit(exit::SOFTWARE)?;
    let definition = settings.agent.definition().map_err(Failure::usage)?;
    let model = match rockbot_llm::resolve(&settings.llm, &|name| std::env::var(name).ok()) {
        Ok(resolved) => Some(resolved),
        Err(LlmConfigError::NotConfigured) => None,
        Err(error) => return Err(error).or_exit(exit::USAGE),
    };
    let stores = match &model {
        Some(_) => Some(ConversationStores::open(settings).await?),
        None => None,
    };
    let fleet = Fleet::embed(settings, stores.as_ref()).await?;
    note!("tool handler: file tools work in {}", settings.files.root.display());
    let host = match model.zip(stores.as_ref()) {
        Some((resolved, stores)) => {
            let name = definition.name.clone();
            let mut host =
                Host::start(&fleet, settings, stores, definition, resolved.model).await?;
            host.start_scheduler();
            note!("agent: {name}, model {}", resolved.origin);
            Some(host)
        }
        None => {
            note!(
                "agent: none, because no model is configured; `rockbot chat` shows how to configure one"
            );
            None
        }
    };
    if settings.embeds() {
        note!("bus: in memory, for this process only; use --bus amqp://… to connect to a broker");
    }
    note!("ready; stop with Ctrl-C or SIGTERM");
    shutdown.requested().await;
    if let Some(host) = host {
        host.stop(settings.service.drain()).await;
    }
    fleet.close().await;
    if let Some(stores) = stores {
        stores.close().await;
    }
    Ok(exit::OK)
}
