//! Paths of the programs that the e2e tests run.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

const NAMES: [&str; 5] = [
    "rockbot",
    "rockbot-agent",
    "rockbot-mcp-bridge",
    "rockbot-openrouter-mcp",
    "rockbot-tool-handler",
];

/// The program `name`, built from the sources of this moment.
pub(crate) fn path(name: &str) -> PathBuf {
    assert!(NAMES.contains(&name), "{name} is not among {NAMES:?}");
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(up_to_date);
    FOLDER.join(name)
}

/// The folder with the programs. Cargo builds those of a package with its own integration tests
/// only, and none with `-p rockbot-tests`, so they are built here: once for all tests of a run.
fn up_to_date() -> PathBuf {
    // A run that has compiled everything names the folder: Cargo may be busy with something else then.
    if let Some(folder) = env::var_os("ROCKBOT_TEST_PROGRAMS").filter(|path| !path.is_empty()) {
        return folder.into();
    }
    // Cargo put this test into `<target>/<profile>/deps/`.
    let test = env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("a folder of a profile").to_path_buf();
    let lock = File::create(folder.join("rockbot-e2e.lock")).expect("a lock file");
    lock.lock().expect("locked");
    // Nextest runs each test in a process of its own, and gives all of one run the same id.
    let run = env::var("NEXTEST_RUN_ID").ok();
    let mark = folder.join("rockbot-e2e.built");
    let built = fs::read_to_string(&mark).ok();
    if run.is_none() || run != built {
        build(&folder);
        fs::write(&mark, run.unwrap_or_default()).expect("a mark");
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
        // With a test among the targets, features are those of a test run: nothing but the
        // programs themselves is compiled again.
        .args(["--test", "e2e"])
        .args(NAMES.iter().flat_map(|name| ["--bin", name]))
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // What cargo says about this package must not look like a change of another one.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let about_us = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "NEXTEST"];
        if about_us.iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(name.as_ref());
        }
    }
    let output = cargo.output().expect("cargo can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the programs cannot be built:\n{said}");
}
