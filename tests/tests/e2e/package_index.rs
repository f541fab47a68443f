//! The package index of Compose, by its own tests.

use std::path::PathBuf;

use rockbot_testkit::fixture::within_timeout;
use tokio::process::Command;

#[tokio::test]
async fn package_index_survives_slow_clients_and_broken_upstreams() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/compose/package-index");
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "test_server"]).current_dir(root).kill_on_drop(true);
    let output = within_timeout("the tests of the index", tests.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
