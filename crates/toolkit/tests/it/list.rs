use std::fs;

use serde_json::json;

use crate::sandbox::Sandbox;

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put(".gitignore", "target/\n*.log\n!keep.log\n");
    sandbox.put(".git/config", "x");
    sandbox.put("README.md", "hello");
    sandbox.put("src/main.rs", "fn main() {}");
    sandbox.put("src/deep/lib.rs", "");
    sandbox.put("src/deep/.gitignore", "/secret\n");
    sandbox.put("src/deep/secret", "");
    sandbox.put("src/secret", "");
    sandbox.put("target/debug/out.rs", "");
    sandbox.put("debug.log", "");
    sandbox.put("keep.log", "");
    sandbox
}

#[tokio::test]
async fn listing_is_sorted_with_sizes() {
    let sandbox = project();
    assert_eq!(
        sandbox.call_text("list_files", json!({})).await,
        ".gitignore (24 bytes)\nREADME.md (5 bytes)\nkeep.log (0 bytes)\nsrc/\n"
    );
    assert_eq!(
        sandbox.call_text("list_files", json!({"path": "./src/"})).await,
        "src/deep/\nsrc/main.rs (12 bytes)\nsrc/secret (0 bytes)\n"
    );
}

#[tokio::test]
async fn recursive_listing_respects_gitignore() {
    let sandbox = project();
    assert_eq!(
        sandbox.call_text("list_files", json!({"path": "src", "recursive": true})).await,
        "src/deep/\nsrc/deep/.gitignore (8 bytes)\nsrc/deep/lib.rs (0 bytes)\n\
         src/main.rs (12 bytes)\nsrc/secret (0 bytes)\n"
    );
    let logs = json!({"recursive": true, "pattern": "*.{log,rs}"});
    assert_eq!(
        sandbox.call_text("list_files", logs).await,
        "keep.log (0 bytes)\nsrc/deep/lib.rs (0 bytes)\nsrc/main.rs (12 bytes)\n"
    );
    let anchored = json!({"recursive": true, "pattern": "/src/*.rs"});
    assert_eq!(sandbox.call_text("list_files", anchored).await, "src/main.rs (12 bytes)\n");
}

#[tokio::test]
async fn number_of_entries_is_limited() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.root("many")).unwrap();
    for number in 0..10_000 {
        fs::write(sandbox.root(&format!("many/{number:05}")), "").unwrap();
    }
    let result = sandbox.call("list_files", json!({"path": "many"})).await.unwrap();
    let text = result.to_text();
    assert_eq!(text.lines().count(), 2_001);
    assert!(text.starts_with("many/00000 (0 bytes)\nmany/00001 (0 bytes)\n"));
    assert!(
        text.ends_with("[only the first 2000 entries; narrow the listing with path or pattern]\n")
    );
    assert_eq!(result.details.unwrap()["truncated"], json!(true));
}

#[tokio::test]
async fn output_size_is_limited() {
    let sandbox = Sandbox::with(|config| config.max_output_bytes = 1024);
    for number in 0..10 {
        sandbox.put(&format!("{}{number}", "x".repeat(200)), "");
    }
    let text = sandbox.call_text("list_files", json!({})).await;
    assert!(text.len() < 1200 && text.contains("[only the first 4 entries"), "{text}");
}

#[tokio::test]
async fn unusual_listings_are_explained() {
    let sandbox = project();
    assert_eq!(
        sandbox.call_text("list_files", json!({"pattern": "*.xyz"})).await,
        "[no entry matches]\n"
    );
    let message = sandbox.call_error("list_files", json!({"path": "README.md"})).await;
    assert_eq!(message, "README.md is not a directory");
    let message = sandbox.call_error("list_files", json!({"pattern": "{a"})).await;
    assert!(message.contains("not valid"), "{message}");
    sandbox.put("odd/a\nb", "");
    let text = sandbox.call_text("list_files", json!({"path": "odd"})).await;
    assert_eq!(text, "odd/a\\nb (0 bytes)\n");
}

#[tokio::test]
async fn depth_is_limited() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.root(&"d/".repeat(300))).unwrap();
    let text = sandbox.call_text("list_files", json!({"recursive": true})).await;
    assert!(text.ends_with("[directories not read completely: 1]\n"), "{text}");
}
