use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use serde_json::json;

use crate::sandbox::Sandbox;

#[tokio::test]
async fn file_is_created_with_directories_and_replaced() {
    let sandbox = Sandbox::new();
    let arguments = |content: &str| json!({"path": "a/b/c.txt", "content": content});
    let text = sandbox.call_text("write_file", arguments("one\r\n")).await;
    assert_eq!(text, "created a/b/c.txt (5 bytes)");
    assert_eq!(sandbox.text("a/b/c.txt"), "one\r\n");
    let text = sandbox.call_text("write_file", arguments("")).await;
    assert_eq!(text, "replaced a/b/c.txt (0 bytes)");
    assert_eq!(sandbox.text("a/b/c.txt"), "");
    sandbox.call_text("write_file", json!({"path": "a/../d/e.txt", "content": "x"})).await;
    assert_eq!(sandbox.text("d/e.txt"), "x");
}

#[tokio::test]
async fn replacement_keeps_mode() {
    let sandbox = Sandbox::new();
    sandbox.put("run.sh", "old");
    let path = sandbox.root("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let reader = fs::File::open(&path).unwrap();
    sandbox.call_text("write_file", json!({"path": "run.sh", "content": "new"})).await;
    let replaced = fs::metadata(&path).unwrap();
    assert_eq!(replaced.permissions().mode() & 0o7777, 0o751);
    // A reader of the old file still has its whole content.
    assert_ne!(replaced.ino(), reader.metadata().unwrap().ino());
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
    assert_eq!(fs::read_dir(sandbox.root("")).unwrap().count(), 1, "a temporary file was left");
}

#[tokio::test]
async fn invalid_targets_are_not_written() {
    let sandbox = Sandbox::with(|config| config.max_write_bytes = 10);
    sandbox.put("dir/file", "x");
    sandbox.put("fixed", "x");
    fs::set_permissions(sandbox.root("fixed"), fs::Permissions::from_mode(0o444)).unwrap();
    for (path, content, expected) in [
        ("dir", "x", "is a directory"),
        (".", "x", "is a directory"),
        ("dir/..", "x", "is a directory"),
        ("dir/file/below", "x", "not a directory"),
        ("fixed", "y", "read-only"),
        ("large", "01234567890", "limit of 10"),
    ] {
        let arguments = json!({"path": path, "content": content});
        let message = sandbox.call_error("write_file", arguments).await;
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert_eq!((sandbox.text("dir/file"), sandbox.text("fixed")), ("x".into(), "x".into()));
    assert!(!sandbox.root("large").exists());
}
