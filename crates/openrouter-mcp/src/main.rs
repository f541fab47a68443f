//! `rockbot-openrouter-mcp`: data of an OpenRouter account, for MCP clients.

use std::process::ExitCode;

use rockbot_openrouter_mcp::{
    AccountServer, DEFAULT_CONFIG, HttpOptions, HttpServer, OpenRouter, OpenRouterSection,
    ServerSection, Transport, serve_stdio,
};
use rockbot_service::{Configuration, Health, Process, ServeError, ServiceSection, Shutdown};

const PROCESS: Process = Process {
    name: "rockbot-openrouter-mcp",
    about:
        "Serves read-only tools for an OpenRouter account over MCP, at http://127.0.0.1:8931/mcp.
Requires an API key: OPENROUTER_API_KEY, or a file named by ROCKBOT_OPENROUTER__API_KEY_FILE.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: DEFAULT_CONFIG,
};

struct Settings {
    service: ServiceSection,
    server: ServerSection,
    openrouter: OpenRouterSection,
    /// `None` when the configuration is invalid; nothing is served then.
    client: Option<OpenRouter>,
}

fn main() -> ExitCode {
    PROCESS.serve(read, serve)
}

fn read(configuration: &mut Configuration) -> Settings {
    let service = configuration.section("service");
    let server: ServerSection = configuration.section("server");
    let openrouter: OpenRouterSection = configuration.section("openrouter");
    let openrouter = openrouter.with_default_key(std::env::var("OPENROUTER_API_KEY").ok());
    let client = openrouter.client();
    let errors = client.as_ref().err().into_iter().flatten().cloned();
    server.validate().into_iter().chain(errors).for_each(|problem| configuration.problem(problem));
    Settings { service, server, openrouter, client: client.ok() }
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings { service, server: section, openrouter, client } = settings;
    let client = client.ok_or_else(|| {
        ServeError::Configuration(
            "openrouter.api_key is missing; set OPENROUTER_API_KEY".to_owned(),
        )
    })?;
    let server = AccountServer::new(client);
    let stop = shutdown.token().clone();
    if section.transport == Transport::Stdio {
        health.serving();
        tracing::info!("ready, on standard input and output");
        let served = serve_stdio(server, stop, service.drain()).await;
        return served.map_err(|error| ServeError::Unavailable(error.to_string()));
    }
    let listening = HttpServer::bind(section.address).await.map_err(|error| {
        ServeError::Unavailable(format!(
            "server.address: cannot listen on {}: {error}",
            section.address
        ))
    })?;
    health.serving();
    tracing::info!("ready at http://{}/mcp", listening.address());
    let options = HttpOptions {
        allowed_hosts: section.allowed_hosts,
        allowed_origins: section.allowed_origins,
        call: openrouter.timeout(),
        drain: service.drain(),
    };
    let served = listening.serve(server, options, stop).await;
    served.map_err(|error| ServeError::Unavailable(error.to_string()))
}
