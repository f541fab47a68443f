//! The package index of Compose: its own tests, and a handler that installs from it.

use std::path::PathBuf;

use rockbot_testkit::fixture::within_timeout;
use serde_json::json;
use tokio::process::Command;

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
    site::{Reply, Site},
};

/// Writes a wheel of the package `demo`.
const WHEEL: &str = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as file:
    file.writestr("demo.py", "VALUE = 42\n")
    info = "demo-1.0.dist-info/"
    file.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    file.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    file.writestr(info + "RECORD", "")
"#;
const FILE: &str = "demo-1.0-py3-none-any.whl";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/compose/package-index")
}

#[tokio::test]
async fn package_index_survives_slow_clients_and_broken_upstreams() {
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "test_server"]).current_dir(folder()).kill_on_drop(true);
    let output = within_timeout("the tests of the index", tests.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the bytes of the wheel.
async fn wheel(fleet: &Fleet) -> Vec<u8> {
    let path = fleet.path(FILE);
    let written = Command::new("python3").args(["-c", WHEEL]).arg(&path).status().await;
    assert!(written.expect("Python").success());
    std::fs::read(path).expect("a wheel")
}

#[tokio::test]
async fn handler_installs_packages_of_a_script_once() {
    let fleet = Fleet::new();
    let (list, file) = ("/simple/demo/", format!("/files/{FILE}"));
    let metadata = format!("{file}.metadata");
    let names = |url: &str| json!({"files": [{"filename": FILE, "url": url, "hashes": {}}]});
    // The list names the port of its own server.
    let files = Site::start([
        (file.as_str(), vec![Reply::ok("application/zip", wheel(&fleet).await)]),
        (
            &metadata,
            vec![Reply::ok("text/plain", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")],
        ),
    ])
    .await;
    let lists = Site::start([(list, vec![Reply::json(&names(&files.url(&file)))])]).await;
    let mut index = Command::new("python3");
    index
        .arg("-uB")
        .arg(folder().join("server.py"))
        .env("PORT", "0")
        .env("PACKAGE_INDEX_URL", lists.url("/simple"))
        .env("PACKAGE_FILES_URL", files.url("/files/"));
    let mut index = Running::start(index);
    index.expect_output("port ").await;
    let output = index.output();
    let port = output.trim().trim_start_matches("port ").to_owned();
    let url = format!("http://127.0.0.1:{port}/simple/");
    let packages = fleet.path("packages").display().to_string();
    let settings = [
        ("ROCKBOT_SCRIPTS__RUNNER", "local"),
        ("ROCKBOT_SCRIPTS__PACKAGES", "true"),
        ("ROCKBOT_SCRIPTS__PACKAGE_FOLDER", &packages),
        ("PIP_INDEX_URL", &url),
        ("UV_DEFAULT_INDEX", &url),
        ("HOME", &packages),
    ];
    let _handler = fleet.handler_with("handler-1", &settings).await;
    fleet.write("uses.py", "import demo\nprint('value', demo.VALUE)\n");
    for _ in 0..2 {
        let script = fleet.run(&["script", "run", "uses.py", "--package", "demo"]).await;
        script.assert_code(0);
        assert_contains(&script.stdout, &["value 42"]);
    }
    assert_eq!(files.requests(&file).len(), 1, "the second script uses the installed package");
    let missing = fleet.run(&["script", "run", "uses.py", "--package", "absent"]).await;
    assert_ne!(missing.code, Some(0), "{}", missing.stdout);
    assert_contains(&missing.stderr, &["absent", "executed: no"]);
}
