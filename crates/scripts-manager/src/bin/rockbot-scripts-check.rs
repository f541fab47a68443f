//! `rockbot-scripts-check`: says whether a network policy opens the network to scripts.

use std::{
    cell::Cell,
    io::{self, Write},
    process::ExitCode,
};

use kube::{Client, Config};
use rockbot_scripts_manager::{PodsSection, policies::problems_in};
use rockbot_service::{
    AdminSection, BusSection, Configuration, Process, ServeError, ServiceSection,
};
use rockbot_store::StoreSection;
use rockbot_tool_rpc::HandlerSection;

const PROCESS: Process = Process {
    name: "rockbot-scripts-check",
    about: "Says whether the network policies of scripts.namespace close the network to scripts.\n\
            Run it with an operator's credentials for the cluster. Exits with 1 when they do not.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../../config.default.toml"),
};

fn main() -> ExitCode {
    let is_open = Cell::new(false);
    let ended = PROCESS.run(read, async |scripts: PodsSection, _| {
        let problems = check(&scripts.namespace).await?;
        is_open.set(!problems.is_empty());
        say(&scripts.namespace, &problems);
        Ok(())
    });
    if is_open.get() { ExitCode::from(1) } else { ended }
}

/// The file is the manager's: of what else is in it, only that it is known matters.
fn read(configuration: &mut Configuration) -> PodsSection {
    let _: ServiceSection = configuration.section("service");
    let _: BusSection = configuration.section("bus");
    let _: HandlerSection = configuration.section("handler");
    let _: StoreSection = configuration.section("store");
    let _: AdminSection = configuration.section("admin");
    configuration.section("scripts")
}

async fn check(namespace: &str) -> Result<Vec<String>, ServeError> {
    let unusable = |error: &dyn std::fmt::Display| {
        ServeError::Configuration(format!("no cluster: {error}; set KUBECONFIG"))
    };
    let cluster = Config::infer().await.map_err(|error| unusable(&error))?;
    let client = Client::try_from(cluster).map_err(|error| unusable(&error))?;
    let found = problems_in(client, namespace).await;
    found.map_err(|error| ServeError::Unavailable(error.to_string()))
}

/// Whoever closed standard output has the exit code.
fn say(namespace: &str, problems: &[String]) {
    let mut out = io::stdout().lock();
    for problem in problems {
        let _ = writeln!(out, "{problem}");
    }
    if problems.is_empty() {
        let _ = writeln!(out, "the policies of {namespace} close the network to scripts");
    }
}
