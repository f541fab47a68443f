//! `rockbot demo --web`: the fleet of the demo behind the web console. A message in the console runs the script.

use std::{io, path::Path, sync::Arc};

use anyhow::Context;
use rockbot_agent::AgentDefinition;
use rockbot_contracts::SessionId;
use rockbot_gateway::{FaceName, GatewaySection};
use rockbot_llm::ScriptedModel;
use rockbot_service::{Shutdown, exit};
use secrecy::SecretString;

use super::{DemoFleet, PROMPT, SCRIPT, at, create_files, print_introduction, scripted_calls};
use crate::{
    failure::{Failure, OrExit, Outcome},
    print::outln,
    render,
    settings::Settings,
    web::{Web, WebParts},
};

/// Serves the console until Ctrl-C or SIGTERM.
pub(crate) async fn run(settings: Settings) -> Outcome {
    let shutdown = Shutdown::on_signal().or_exit(exit::SOFTWARE)?;
    let folder = create_files("")?;
    let mut settings = at(settings, folder.path());
    settings.agent.conversations.store = Some(SecretString::from("memory:"));
    settings.gateway = console(&settings.gateway);
    let model = ScriptedModel::from_toml("demo", SCRIPT).or_exit(exit::SOFTWARE)?;
    let definition = AgentDefinition::assistant();
    let fleet =
        DemoFleet::start(&settings, definition, Arc::new(model), SessionId::generate()).await?;
    let served = serve(&fleet, &settings, folder.path(), &shutdown).await;
    fleet.stop(&settings).await;
    folder.close().context("cannot remove the temporary directory").or_exit(exit::SOFTWARE)?;
    served.map(|()| exit::OK)
}

/// Returns a section that serves the console alone, on this machine, to those who have its login link.
fn console(section: &GatewaySection) -> GatewaySection {
    let (mut address, default) = (section.address, GatewaySection::default().address);
    if !address.ip().is_loopback() {
        address.set_ip(default.ip());
    }
    GatewaySection { address, faces: [FaceName::Console].into(), ..GatewaySection::default() }
}

async fn serve(
    fleet: &DemoFleet,
    settings: &Settings,
    folder: &Path,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let parts = WebParts {
        bus: fleet.fleet.bus.clone(),
        stores: Some(&fleet.stores),
        agent: Some(&fleet.conversation.agent),
        servers: fleet.fleet.embedded_servers(),
        // The first message may be sent before the screen of the calls is opened.
        watches_from_start: true,
    };
    let web = Web::start(settings, parts).await?;
    let printed = print_hints(folder, &web);
    if printed.is_ok() {
        shutdown.requested().await;
    }
    web.stop().await;
    printed.map_err(Failure::from)
}

fn print_hints(folder: &Path, web: &Web) -> io::Result<()> {
    print_introduction(
        folder,
        "The console, an agent and a tool handler run in this process, connected by an in-memory bus.",
    )?;
    outln!("{}\n", web.notice())?;
    outln!("Then send a message to the agent, such as: {PROMPT}")?;
    let calls = scripted_calls();
    outln!(
        "{}",
        render::dim(&format!(
            "Each message makes the scripted model call {calls} tools; the screen Calls shows them. Ctrl-C ends the demo."
        ))
    )
}
