use std::fs;

use serde_json::json;

use crate::workshop::Workshop;

fn project() -> Workshop {
    let workshop = Workshop::new();
    workshop.put(".gitignore", "target/\n*.log\n!keep.log\n");
    workshop.put(".git/config", "x");
    workshop.put("README.md", "hello");
    workshop.put("src/main.rs", "fn main() {}");
    workshop.put("src/deep/lib.rs", "");
    workshop.put("src/deep/.gitignore", "/secret\n");
    workshop.put("src/deep/secret", "");
    workshop.put("src/secret", "");
    workshop.put("target/debug/out.rs", "");
    workshop.put("debug.log", "");
    workshop.put("keep.log", "");
    workshop
}

#[tokio::test]
async fn a_directory_is_listed_in_order_with_sizes() {
    let workshop = project();
    assert_eq!(
        workshop.said("list_files", json!({})).await,
        ".gitignore (24 bytes)\nREADME.md (5 bytes)\nkeep.log (0 bytes)\nsrc/\n"
    );
    assert_eq!(
        workshop.said("list_files", json!({"path": "./src/"})).await,
        "src/deep/\nsrc/main.rs (12 bytes)\nsrc/secret (0 bytes)\n"
    );
}

#[tokio::test]
async fn recursion_honours_every_gitignore_on_the_way() {
    let workshop = project();
    assert_eq!(
        workshop.said("list_files", json!({"path": "src", "recursive": true})).await,
        "src/deep/\nsrc/deep/.gitignore (8 bytes)\nsrc/deep/lib.rs (0 bytes)\n\
         src/main.rs (12 bytes)\nsrc/secret (0 bytes)\n"
    );
    let logs = json!({"recursive": true, "pattern": "*.{log,rs}"});
    assert_eq!(
        workshop.said("list_files", logs).await,
        "keep.log (0 bytes)\nsrc/deep/lib.rs (0 bytes)\nsrc/main.rs (12 bytes)\n"
    );
    let anchored = json!({"recursive": true, "pattern": "/src/*.rs"});
    assert_eq!(workshop.said("list_files", anchored).await, "src/main.rs (12 bytes)\n");
}

#[tokio::test]
async fn ten_thousand_files_are_capped_with_a_note() {
    let workshop = Workshop::new();
    fs::create_dir(workshop.root("many")).unwrap();
    for number in 0..10_000 {
        fs::write(workshop.root(&format!("many/{number:05}")), "").unwrap();
    }
    let result = workshop.call("list_files", json!({"path": "many"})).await.unwrap();
    let text = result.to_text();
    assert_eq!(text.lines().count(), 2_001);
    assert!(text.starts_with("many/00000 (0 bytes)\nmany/00001 (0 bytes)\n"));
    assert!(text.ends_with("[only the first 2000 entries; narrow it down with path or pattern]\n"));
    assert_eq!(result.details.unwrap()["truncated"], json!(true));
}

#[tokio::test]
async fn the_output_is_capped_too() {
    let workshop = Workshop::with(|config| config.max_output_bytes = 1024);
    for number in 0..10 {
        workshop.put(&format!("{}{number}", "x".repeat(200)), "");
    }
    let text = workshop.said("list_files", json!({})).await;
    assert!(text.len() < 1200 && text.contains("[only the first 4 entries"), "{text}");
}

#[tokio::test]
async fn odd_requests_are_explained() {
    let workshop = project();
    assert_eq!(
        workshop.said("list_files", json!({"pattern": "*.xyz"})).await,
        "[nothing matches]\n"
    );
    let message = workshop.refusal("list_files", json!({"path": "README.md"})).await;
    assert_eq!(message, "README.md is not a directory");
    let message = workshop.refusal("list_files", json!({"pattern": "{a"})).await;
    assert!(message.contains("not valid"), "{message}");
    workshop.put("odd/a\nb", "");
    let text = workshop.said("list_files", json!({"path": "odd"})).await;
    assert_eq!(text, "odd/a\\nb (0 bytes)\n");
}

#[tokio::test]
async fn a_very_deep_tree_is_listed_as_far_as_it_is_safe() {
    let workshop = Workshop::new();
    fs::create_dir_all(workshop.root(&"d/".repeat(300))).unwrap();
    let text = workshop.said("list_files", json!({"recursive": true})).await;
    assert!(text.ends_with("[directories not read in full: 1]\n"), "{text}");
}
