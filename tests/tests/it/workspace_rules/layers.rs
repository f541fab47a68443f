//! Rules for dependencies between packages, checked with `cargo metadata`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::{assert_no_violations, root};

/// The layer of each package. A package imports packages of lower layers only, so packages of the same
/// layer do not import each other.
const LAYERS: &[(&str, u8)] = &[
    ("rockbot-contracts", 0),
    ("rockbot-child", 1),
    ("rockbot-egress", 1),
    ("rockbot-service", 1),
    ("rockbot-sse", 1),
    ("rockbot-store", 1),
    ("rockbot-bus", 2),
    ("rockbot-llm", 2),
    ("rockbot-tools", 2),
    ("rockbot-bus-rabbitmq", 3),
    ("rockbot-hooks", 3),
    ("rockbot-store-sql", 3),
    ("rockbot-tool-rpc", 3),
    ("rockbot-fleet", 4),
    ("rockbot-memory", 4),
    ("rockbot-monitor", 4),
    ("rockbot-rest", 4),
    ("rockbot-scripts", 4),
    ("rockbot-toolkit", 4),
    ("rockbot-web", 4),
    ("rockbot-agent", 5),
    ("rockbot-mcp-bridge", 5),
    ("rockbot-mcp-server", 5),
    ("rockbot-openrouter-mcp", 5),
    ("rockbot-scripts-manager", 5),
    ("rockbot-tool-handler", 5),
    ("rockbot-gateway", 6),
    ("rockbot-cli", 7),
];
/// Packages without a layer. They may import any layer, and no layer imports them.
const WITHOUT_LAYER: [&str; 4] = ["own-tool", "rockbot-testkit", "rockbot-tests", "xtask"];
/// Packages excluded from the command line, whose build must not include Kubernetes.
const NEVER_IN_CLI: [&str; 2] = ["rockbot-scripts-manager", "rockbot-openrouter-mcp"];
/// External crates that only one package may import. `deny.toml` has the same rules for transitive
/// dependencies.
const CONFINED: &[(&str, &str)] = &[
    ("seccompiler", "rockbot-scripts"),
    ("lapin", "rockbot-bus-rabbitmq"),
    ("pdf-extract", "rockbot-web"),
    ("sqlx", "rockbot-store-sql"),
    ("jsonschema", "rockbot-tools"),
    ("moka", "rockbot-tools"),
    ("governor", "rockbot-tools"),
    ("figment", "rockbot-service"),
    ("metrics-prometheus", "rockbot-service"),
    ("opentelemetry-otlp", "rockbot-service"),
    ("prometheus", "rockbot-service"),
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
fn every_package_has_a_layer() {
    let layers = layers();
    let unassigned = packages().into_iter().map(|package| text(&package["name"])).filter(|name| {
        !layers.contains_key(name.as_str()) && !WITHOUT_LAYER.contains(&name.as_str())
    });
    assert_no_violations(
        &unassigned
            .map(|name| format!("{name}: assign a layer in LAYERS, with the reason in an ADR"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn packages_import_lower_layers_only() {
    let layers = layers();
    let mut violations = Vec::new();
    // Benchmarks and tests are not shipped and may import higher layers.
    for Import { package, dependency, .. } in imports().into_iter().filter(|import| !import.dev) {
        let (Some(own), Some(below)) =
            (layers.get(package.as_str()), layers.get(dependency.as_str()))
        else {
            continue;
        };
        if below >= own {
            violations.push(format!(
                "{package} (layer {own}) imports {dependency} (layer {below}): move what both \
                 need to a lower layer, or pass it in as a port"
            ));
        }
    }
    assert_no_violations(&violations);
}

#[test]
fn packages_without_layer_are_dev_dependencies() {
    let violations = imports().into_iter().filter(|import| {
        let Import { package, dependency, dev } = import;
        WITHOUT_LAYER.contains(&dependency.as_str())
            && !dev
            && !WITHOUT_LAYER.contains(&package.as_str())
    });
    assert_no_violations(
        &violations
            .map(|Import { package, dependency, .. }| {
                format!("{package}: move {dependency} to [dev-dependencies]")
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn xtask_imports_no_workspace_crate() {
    let violations = imports()
        .into_iter()
        .filter(|import| import.package == "xtask" && import.dependency.starts_with("rockbot-"));
    assert_no_violations(
        &violations
            .map(|import| {
                format!("xtask: remove {}; every task waits for it to compile", import.dependency)
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn cli_imports_neither_kubernetes_nor_account_tools() {
    let violations = imports().into_iter().filter(|import| {
        import.package == "rockbot-cli" && NEVER_IN_CLI.contains(&import.dependency.as_str())
    });
    assert_no_violations(
        &violations
            .map(|import| format!("rockbot-cli: use {} over the bus", import.dependency))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn external_systems_are_confined_to_one_crate() {
    let mut violations = Vec::new();
    for Import { package, dependency, .. } in imports() {
        for &(confined, owner) in CONFINED {
            if dependency == confined && package != owner {
                violations.push(format!("{package} imports {confined}: use {owner} instead"));
            }
        }
    }
    assert_no_violations(&violations);
}

#[test]
fn packages_are_named_by_folder_and_use_workspace_lints() {
    let mut violations = Vec::new();
    for package in packages() {
        let manifest = text(&package["manifest_path"]);
        let name = text(&package["name"]);
        let folder = manifest.rsplit('/').nth(1).unwrap_or_default();
        if name != format!("rockbot-{folder}") && name != folder {
            violations.push(format!("{manifest}: name the package rockbot-{folder}"));
        }
        let content = std::fs::read_to_string(&manifest).expect("a readable manifest");
        if !content.contains("[lints]\nworkspace = true") {
            violations.push(format!("{manifest}: add `[lints]` with `workspace = true`"));
        }
    }
    assert_no_violations(&violations);
}

fn layers() -> BTreeMap<&'static str, u8> {
    LAYERS.iter().copied().collect()
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
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string in the metadata").to_owned()
}
