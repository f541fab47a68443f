//! `rockbot-scripts-check`: checks whether network policies close the network to scripts.

use std::{
    cell::Cell,
    io::{self, Write},
    process::ExitCode,
};

use kube::{Client, Config};
use rockbot_scripts_manager::{PodsSection, policies::check_namespace};
use rockbot_service::{AdminSection, Configuration, Process, ServeError, ServiceSection};
use rockbot_store::StoreSection;
use rockbot_tool_rpc::HandlerSection;

const PROCESS: Process = Process {
    name: "rockbot-scripts-check",
    about: "Checks whether the network policies of scripts.namespace close the network to scripts.\n\
            Needs an operator's credentials for the cluster. Exits with 1 if the network is open.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../../config.default.toml"),
};

fn main() -> ExitCode {
    let is_open = Cell::new(false);
    let exit_code = PROCESS.run(read, async |scripts: PodsSection, _| {
        let openings = check(&scripts.namespace).await?;
        is_open.set(!openings.is_empty());
        print(&scripts.namespace, &openings);
        Ok(())
    });
    if is_open.get() { ExitCode::from(1) } else { exit_code }
}

/// Reads the manager's configuration. The other sections are only read so that their keys are known.
fn read(configuration: &mut Configuration) -> PodsSection {
    let _: ServiceSection = configuration.section("service");
    let _: rockbot_bus_rabbitmq::BusSection = configuration.section("bus");
    let _: HandlerSection = configuration.section("handler");
    let _: StoreSection = configuration.section("store");
    let _: AdminSection = configuration.section("admin");
    configuration.section("scripts")
}

async fn check(namespace: &str) -> Result<Vec<String>, ServeError> {
    let cluster_error = |error: &dyn std::fmt::Display| {
        ServeError::Configuration(format!(
            "Kubernetes cluster unavailable: {error}; set KUBECONFIG"
        ))
    };
    let cluster = Config::infer().await.map_err(|error| cluster_error(&error))?;
    let client = Client::try_from(cluster).map_err(|error| cluster_error(&error))?;
    let found = check_namespace(client, namespace).await;
    found.map_err(|error| ServeError::Unavailable(error.to_string()))
}

/// Prints the openings. Write errors are ignored: the exit code has the result.
fn print(namespace: &str, openings: &[String]) {
    let mut out = io::stdout().lock();
    for opening in openings {
        let _ = writeln!(out, "{opening}");
    }
    if openings.is_empty() {
        let _ = writeln!(out, "the policies of {namespace} close the network to scripts");
    }
}
