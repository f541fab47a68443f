//! Who may import whom, read from `cargo metadata`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::{assert_kept, root};

/// The floor of each package: imports only go to a lower number, so neighbours never meet.
const FLOORS: [(&str, u8); 16] = [
    ("rockbot-contracts", 0),
    ("rockbot-child", 1),
    ("rockbot-service", 1),
    ("rockbot-store", 1),
    ("rockbot-bus", 2),
    ("rockbot-llm", 2),
    ("rockbot-bus-rabbitmq", 3),
    ("rockbot-tools", 3),
    ("rockbot-scripts", 4),
    ("rockbot-toolkit", 4),
    ("rockbot-agent", 5),
    ("rockbot-mcp-bridge", 5),
    ("rockbot-openrouter-mcp", 5),
    ("rockbot-scripts-manager", 5),
    ("rockbot-tool-handler", 5),
    ("rockbot-cli", 6),
];
/// Packages beside the house: they may look at any floor, and no floor builds on them.
const BESIDE: [&str; 3] = ["rockbot-testkit", "rockbot-tests", "xtask"];
/// A newcomer's first build must not pay for Kubernetes, and the account tools are a server of
/// their own.
const NEVER_IN_CLI: [&str; 2] = ["rockbot-scripts-manager", "rockbot-openrouter-mcp"];
/// Outside crates that one package alone may import. `deny.toml` has the same for the whole tree.
const FENCED: [(&str, &str); 9] = [
    ("seccompiler", "rockbot-scripts"),
    ("lapin", "rockbot-bus-rabbitmq"),
    ("sqlx", "rockbot-store"),
    ("jsonschema", "rockbot-tools"),
    ("figment", "rockbot-service"),
    ("metrics-exporter-prometheus", "rockbot-service"),
    ("opentelemetry_sdk", "rockbot-service"),
    ("k8s-openapi", "rockbot-scripts-manager"),
    ("kube", "rockbot-scripts-manager"),
];

struct Import {
    package: String,
    dependency: String,
    dev: bool,
}

#[test]
fn every_package_stands_on_a_floor_or_beside_the_house() {
    let floors = floors();
    let homeless = packages()
        .into_iter()
        .map(|package| text(&package["name"]))
        .filter(|name| !floors.contains_key(name.as_str()) && !BESIDE.contains(&name.as_str()));
    assert_kept(
        &homeless
            .map(|name| format!("{name}: give it a floor in FLOORS, after an ADR that says why"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn imports_only_go_down_and_neighbours_never_meet() {
    let floors = floors();
    let mut broken = Vec::new();
    // A benchmark may measure an adapter from the floor above: it ships with nobody.
    for Import { package, dependency, .. } in imports().into_iter().filter(|import| !import.dev) {
        let (Some(own), Some(below)) =
            (floors.get(package.as_str()), floors.get(dependency.as_str()))
        else {
            continue;
        };
        if below >= own {
            broken.push(format!(
                "{package} (floor {own}) imports {dependency} (floor {below}): move what both \
                 need to a lower floor, or pass it in as a port"
            ));
        }
    }
    assert_kept(&broken);
}

#[test]
fn nothing_but_tests_imports_what_stands_beside_the_house() {
    let broken = imports().into_iter().filter(|import| {
        let Import { package, dependency, dev } = import;
        BESIDE.contains(&dependency.as_str()) && !dev && !BESIDE.contains(&package.as_str())
    });
    assert_kept(
        &broken
            .map(|Import { package, dependency, .. }| {
                format!("{package}: move {dependency} to [dev-dependencies]")
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn chores_compile_without_the_house() {
    let broken = imports()
        .into_iter()
        .filter(|import| import.package == "xtask" && import.dependency.starts_with("rockbot-"));
    assert_kept(
        &broken
            .map(|import| format!("xtask: drop {}; every chore waits for it", import.dependency))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn the_command_line_program_composes_neither_kubernetes_nor_account_tools() {
    let broken = imports().into_iter().filter(|import| {
        import.package == "rockbot-cli" && NEVER_IN_CLI.contains(&import.dependency.as_str())
    });
    assert_kept(
        &broken
            .map(|import| format!("rockbot-cli: reach {} over the bus", import.dependency))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn an_outside_system_is_met_in_one_crate() {
    let mut broken = Vec::new();
    for Import { package, dependency, .. } in imports() {
        for (outside, owner) in FENCED {
            if dependency == outside && package != owner {
                broken.push(format!("{package} imports {outside}: go through {owner}"));
            }
        }
    }
    assert_kept(&broken);
}

#[test]
fn a_folder_is_named_like_its_package_and_keeps_the_lints_of_the_workspace() {
    let mut broken = Vec::new();
    for package in packages() {
        let manifest = text(&package["manifest_path"]);
        let name = text(&package["name"]);
        let folder = manifest.rsplit('/').nth(1).unwrap_or_default();
        if name != format!("rockbot-{folder}") && name != folder {
            broken.push(format!("{manifest}: name the package rockbot-{folder}"));
        }
        let lines = std::fs::read_to_string(&manifest).expect("a manifest can be read");
        if !lines.contains("[lints]\nworkspace = true") {
            broken.push(format!("{manifest}: add `[lints]` with `workspace = true`"));
        }
    }
    assert_kept(&broken);
}

fn floors() -> BTreeMap<&'static str, u8> {
    FLOORS.into_iter().collect()
}

fn imports() -> Vec<Import> {
    let mut imports = Vec::new();
    for package in packages() {
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            imports.push(Import {
                package: text(&package["name"]),
                dependency: text(&dependency["name"]),
                dev: dependency["kind"] == "dev",
            });
        }
    }
    imports
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string in the metadata").to_owned()
}
