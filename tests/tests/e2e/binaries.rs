//! Paths of the programs that the e2e tests run.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

const NAMES: [&str; 6] = [
    "rockbot",
    "rockbot-agent",
    "rockbot-gateway",
    "rockbot-mcp-bridge",
    "rockbot-openrouter-mcp",
    "rockbot-tool-handler",
];

/// Returns the path of an up-to-date program.
pub(crate) fn path(name: &str) -> PathBuf {
    assert!(NAMES.contains(&name), "{name} is not among {NAMES:?}");
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(build_once);
    FOLDER.join(name)
}

/// Builds the programs once per test run and returns their folder. Cargo builds the programs of a
/// package with its own integration tests only, and none with `-p rockbot-tests`.
fn build_once() -> PathBuf {
    // Set by a run that has compiled the programs, during which other tasks may hold Cargo's lock.
    if let Some(folder) = env::var_os("ROCKBOT_TEST_PROGRAMS").filter(|path| !path.is_empty()) {
        return folder.into();
    }
    // This test is in `<target>/<profile>/deps/`.
    let test = env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("a folder of a profile").to_path_buf();
    let lock = File::create(folder.join("rockbot-e2e.lock")).expect("a lock file");
    lock.lock().expect("locked");
    // Nextest runs each test in a separate process, with the same id for a whole run.
    let run = env::var("NEXTEST_RUN_ID").ok();
    let marker = folder.join("rockbot-e2e.built");
    let built = fs::read_to_string(&marker).ok();
    if run.is_none() || run != built {
        build(&folder);
        fs::write(&marker, run.unwrap_or_default()).expect("written");
    }
    folder
}

fn build(folder: &Path) {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = folder.parent().expect("a target folder");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--locked", "--workspace", "--profile", profile])
        // A test target selects the features of a test run, so that dependencies are not rebuilt.
        .args(["--test", "e2e"])
        .args(NAMES.iter().flat_map(|name| ["--bin", name]))
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // Variables about this package would invalidate the builds of others.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "NEXTEST"];
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(name.as_ref());
        }
    }
    let output = cargo.output().expect("cargo can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the programs cannot be built:\n{stderr}");
}
