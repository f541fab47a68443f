use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use serde_json::json;

use crate::workshop::Workshop;

#[tokio::test]
async fn a_file_is_made_with_its_directories_and_replaced() {
    let workshop = Workshop::new();
    let arguments = |content: &str| json!({"path": "a/b/c.txt", "content": content});
    let said = workshop.said("write_file", arguments("one\r\n")).await;
    assert_eq!(said, "created a/b/c.txt (5 bytes)");
    assert_eq!(workshop.text("a/b/c.txt"), "one\r\n");
    let said = workshop.said("write_file", arguments("")).await;
    assert_eq!(said, "replaced a/b/c.txt (0 bytes)");
    assert_eq!(workshop.text("a/b/c.txt"), "");
    workshop.said("write_file", json!({"path": "a/../d/e.txt", "content": "x"})).await;
    assert_eq!(workshop.text("d/e.txt"), "x");
}

#[tokio::test]
async fn a_replacement_is_another_file_with_the_same_mode() {
    let workshop = Workshop::new();
    workshop.put("run.sh", "old");
    let path = workshop.root("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let reader = fs::File::open(&path).unwrap();
    workshop.said("write_file", json!({"path": "run.sh", "content": "new"})).await;
    let replaced = fs::metadata(&path).unwrap();
    assert_eq!(replaced.permissions().mode() & 0o7777, 0o751);
    // Who had the old file open still has all of it.
    assert_ne!(replaced.ino(), reader.metadata().unwrap().ino());
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
    assert_eq!(fs::read_dir(workshop.root("")).unwrap().count(), 1, "a draft was left behind");
}

#[tokio::test]
async fn what_must_not_be_written_stays() {
    let workshop = Workshop::with(|config| config.max_write_bytes = 10);
    workshop.put("dir/file", "x");
    workshop.put("fixed", "x");
    fs::set_permissions(workshop.root("fixed"), fs::Permissions::from_mode(0o444)).unwrap();
    for (path, content, expected) in [
        ("dir", "x", "is a directory"),
        (".", "x", "is a directory"),
        ("dir/..", "x", "is a directory"),
        ("dir/file/below", "x", "not a directory"),
        ("fixed", "y", "read-only"),
        ("large", "01234567890", "may have 10"),
    ] {
        let arguments = json!({"path": path, "content": content});
        let message = workshop.refusal("write_file", arguments).await;
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert_eq!((workshop.text("dir/file"), workshop.text("fixed")), ("x".into(), "x".into()));
    assert!(!workshop.root("large").exists());
}
