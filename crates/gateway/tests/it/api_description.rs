//! The OpenAPI description of the API, as committed.

use std::{collections::BTreeSet, fs, path::PathBuf};

use rockbot_contracts::InstanceId;
use rockbot_gateway::{Gateway, GatewayParts, GatewaySection, Guard, openapi_description};
use serde_json::Value;

use crate::fleet::Fleet;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("openapi.json")
}

fn description() -> String {
    openapi_description().unwrap() + "\n"
}

/// Variable that writes the description instead of comparing it.
const WRITE: &str = "ROCKBOT_WRITE_API_DESCRIPTION";

#[test]
fn committed_description_is_current() {
    if std::env::var_os(WRITE).is_some() {
        fs::write(file(), description()).unwrap();
        return;
    }
    let committed = fs::read_to_string(file()).unwrap_or_default();
    assert!(
        committed == description(),
        "{} is stale; write it with `{WRITE}=1 cargo test -p rockbot-gateway --test it \
         committed_description`",
        file().display()
    );
}

#[tokio::test]
async fn every_route_is_described() {
    let fleet = Fleet::start().await;
    let section = GatewaySection::default();
    let (bus, agents, store) = (fleet.bus.clone(), section.agents.clone(), fleet.store.clone());
    let instance = InstanceId::generate();
    let parts = GatewayParts::connect(bus, agents, store, instance).await.unwrap();
    let guard = Guard::start(&section, section.address).unwrap();
    let gateway = Gateway::new(&section, &parts, guard);
    let is_described = |path: &str| {
        path.starts_with("/api/v1") && !["/api/v1/me", "/api/v1/session"].contains(&path)
    };
    let routes: BTreeSet<_> = gateway
        .routes()
        .filter(|(_, route)| is_described(route.path))
        .flat_map(|(_, route)| {
            route.methods.iter().map(|method| format!("{method} {}", route.path))
        })
        .collect();
    let document: Value = serde_json::from_str(&description()).unwrap();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        described.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    assert_eq!(routes, described);
}
