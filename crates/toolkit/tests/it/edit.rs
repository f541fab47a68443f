use std::{fs, os::unix::fs::PermissionsExt};

use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::json;

use crate::workshop::Workshop;

#[tokio::test]
async fn text_that_occurs_once_is_replaced_and_the_rest_stays() {
    let workshop = Workshop::new();
    workshop.put("a.txt", "one\r\ntwo\nthree");
    fs::set_permissions(workshop.root("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let edit = json!({"path": "a.txt", "old_text": "two\n", "new_text": "2\n"});
    let said = workshop.said("edit_file", edit).await;
    assert_eq!(said, "replaced 1 occurrence in a.txt, at line 2");
    assert_eq!(workshop.text("a.txt"), "one\r\n2\nthree");
    let mode = fs::metadata(workshop.root("a.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[tokio::test]
async fn ambiguous_text_is_counted_and_left() {
    let workshop = Workshop::new();
    workshop.put("a.txt", "x = 1;\nx = 1;\nx = 1;\n");
    let mut edit = json!({"path": "a.txt", "old_text": "x = 1;", "new_text": "y"});
    let message = workshop.refusal("edit_file", edit.clone()).await;
    assert!(message.contains("occurs 3 times") && message.contains("replace_all"), "{message}");
    assert_eq!(workshop.text("a.txt"), "x = 1;\nx = 1;\nx = 1;\n");
    edit["replace_all"] = json!(true);
    let said = workshop.said("edit_file", edit).await;
    assert_eq!(said, "replaced 3 occurrences in a.txt, the first at line 1");
    assert_eq!(workshop.text("a.txt"), "y\ny\ny\n");
}

#[tokio::test]
async fn what_cannot_be_edited_is_explained() {
    let workshop = Workshop::with(|config| config.max_write_bytes = 100);
    workshop.put("a.txt", "one");
    workshop.put("latin1", b"caf\xe9");
    workshop.put("large", "a".repeat(101));
    for (path, old, new, expected) in [
        ("a.txt", "One", "x", "does not occur"),
        ("a.txt", "one", "one", "the same"),
        ("a.txt", "", "x", "old_text is empty"),
        ("latin1", "caf", "x", "not UTF-8"),
        ("large", "a", "b", "more than 100 bytes"),
        ("missing", "a", "b", "does not exist"),
    ] {
        let edit = json!({"path": path, "old_text": old, "new_text": new});
        let message = workshop.refusal("edit_file", edit).await;
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert!(!workshop.root("missing").exists());
}

#[tokio::test]
async fn edits_side_by_side_do_not_undo_each_other() {
    let workshop = Workshop::new();
    let text: String = (0..50).map(|number| format!("<{number}>\n")).collect();
    workshop.put("a.txt", &text);
    let workshop = &workshop;
    let mut edits: FuturesUnordered<_> = (0..50)
        .map(|number| {
            let (old, new) = (format!("<{number}>"), format!("[{number}]"));
            workshop.said("edit_file", json!({"path": "a.txt", "old_text": old, "new_text": new}))
        })
        .collect();
    while edits.next().await.is_some() {}
    assert_eq!(workshop.text("a.txt"), text.replace('<', "[").replace('>', "]"));
}
