//! The SQLite file of the journal is removed under a running handler.

use std::fs;

use rustix::process::Signal;

use crate::{fleet::Fleet, http::wait_for_readiness};

#[tokio::test]
async fn handler_without_its_journal_file_is_not_ready_and_starts_nothing() {
    let fleet = Fleet::new();
    let setting = ("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0");
    let mut handler = fleet.handler_with("handler-1", &[setting]).await;
    let admin = handler.admin_address().await;
    wait_for_readiness(&admin, 200).await;
    let line = r#"{"command": "echo ran >> lines"}"#;
    fleet.run(&["tools", "call", "bash", line]).await.assert_code(0);

    for entry in fs::read_dir(fleet.path("")).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.display().to_string().contains("calls.db") {
            fs::remove_file(path).expect("removed");
        }
    }
    let body = wait_for_readiness(&admin, 503).await;
    assert!(body.contains("database file was removed"), "{body}");
    let refused = fleet.run(&["--json", "tools", "call", "bash", line]).await;
    refused.assert_code(69);
    let refused = refused.json();
    assert_eq!(refused["code"], "unavailable", "{refused}");
    assert_eq!(refused["executed"], "no", "{refused}");
    assert_eq!(fs::read_to_string(fleet.path("lines")).expect("a line"), "ran\n");
    assert!(handler.is_alive());
    handler.send(Signal::TERM);
    handler.wait().await.assert_code(0);

    // Another process creates a new file.
    let _restarted = fleet.handler("handler-1").await;
    fleet.run(&["tools", "call", "bash", line]).await.assert_code(0);
    assert_eq!(fs::read_to_string(fleet.path("lines")).expect("lines"), "ran\nran\n");
}
