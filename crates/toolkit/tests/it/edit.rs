use std::{fs, os::unix::fs::PermissionsExt};

use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::json;

use crate::sandbox::Sandbox;

#[tokio::test]
async fn unique_text_is_replaced() {
    let sandbox = Sandbox::new();
    sandbox.put("a.txt", "one\r\ntwo\nthree");
    fs::set_permissions(sandbox.root("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let edit = json!({"path": "a.txt", "old_text": "two\n", "new_text": "2\n"});
    let text = sandbox.call_text("edit_file", edit).await;
    assert_eq!(text, "replaced 1 occurrence in a.txt, at line 2");
    assert_eq!(sandbox.text("a.txt"), "one\r\n2\nthree");
    let mode = fs::metadata(sandbox.root("a.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[tokio::test]
async fn ambiguous_text_is_not_replaced() {
    let sandbox = Sandbox::new();
    sandbox.put("a.txt", "x = 1;\nx = 1;\nx = 1;\n");
    let mut edit = json!({"path": "a.txt", "old_text": "x = 1;", "new_text": "y"});
    let message = sandbox.call_error("edit_file", edit.clone()).await;
    assert!(message.contains("occurs 3 times") && message.contains("replace_all"), "{message}");
    assert_eq!(sandbox.text("a.txt"), "x = 1;\nx = 1;\nx = 1;\n");
    edit["replace_all"] = json!(true);
    let text = sandbox.call_text("edit_file", edit).await;
    assert_eq!(text, "replaced 3 occurrences in a.txt, the first at line 1");
    assert_eq!(sandbox.text("a.txt"), "y\ny\ny\n");
}

#[tokio::test]
async fn edit_errors_are_explained() {
    let sandbox = Sandbox::with(|config| config.max_write_bytes = 100);
    sandbox.put("a.txt", "one");
    sandbox.put("latin1", b"caf\xe9");
    sandbox.put("large", "a".repeat(101));
    for (path, old, new, expected) in [
        ("a.txt", "One", "x", "does not occur"),
        ("a.txt", "one", "one", "the same"),
        ("a.txt", "", "x", "old_text is empty"),
        ("latin1", "caf", "x", "not UTF-8"),
        ("large", "a", "b", "limit of 100 bytes"),
        ("missing", "a", "b", "does not exist"),
    ] {
        let edit = json!({"path": path, "old_text": old, "new_text": new});
        let message = sandbox.call_error("edit_file", edit).await;
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert!(!sandbox.root("missing").exists());
}

#[tokio::test]
async fn concurrent_edits_are_all_kept() {
    let sandbox = Sandbox::new();
    let text: String = (0..50).map(|number| format!("<{number}>\n")).collect();
    sandbox.put("a.txt", &text);
    let sandbox = &sandbox;
    let mut edits: FuturesUnordered<_> = (0..50)
        .map(|number| {
            let (old, new) = (format!("<{number}>"), format!("[{number}]"));
            sandbox
                .call_text("edit_file", json!({"path": "a.txt", "old_text": old, "new_text": new}))
        })
        .collect();
    while edits.next().await.is_some() {}
    assert_eq!(sandbox.text("a.txt"), text.replace('<', "[").replace('>', "]"));
}
