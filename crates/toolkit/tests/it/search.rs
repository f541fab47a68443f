use std::fs;

use serde_json::json;

use crate::sandbox::Sandbox;

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put(".gitignore", "ignored\n");
    sandbox.put("a.rs", "one\nTwo\r\nthree two\n");
    sandbox.put("b/c.txt", "two\n");
    sandbox.put("ignored", "two\n");
    sandbox.put("binary", b"two\n\0two\n");
    sandbox.put("late-binary", [b"two\n", b"x\n".repeat(100_000).as_slice(), b"\0"].concat());
    sandbox
}

#[tokio::test]
async fn matches_have_path_and_line() {
    let sandbox = project();
    assert_eq!(
        sandbox.call_text("search", json!({"pattern": "two"})).await,
        "a.rs:3: three two\nb/c.txt:1: two\n"
    );
    assert_eq!(
        sandbox.call_text("search", json!({"pattern": "^two$", "case_insensitive": true})).await,
        "a.rs:2: Two\nb/c.txt:1: two\n"
    );
    assert_eq!(
        sandbox.call_text("search", json!({"pattern": "two", "glob": "*.rs"})).await,
        "a.rs:3: three two\n"
    );
    assert_eq!(
        sandbox.call_text("search", json!({"pattern": "two", "path": "b"})).await,
        "b/c.txt:1: two\n"
    );
    assert_eq!(
        sandbox.call_text("search", json!({"pattern": "two", "path": "ignored"})).await,
        "ignored:1: two\n"
    );
}

#[tokio::test]
async fn matches_and_output_are_limited() {
    let sandbox = Sandbox::with(|config| config.max_output_bytes = 2048);
    sandbox.put("a.txt", "x\n".repeat(100));
    let text = sandbox.call_text("search", json!({"pattern": "x", "max_matches": 2})).await;
    assert!(text.starts_with("a.txt:1: x\na.txt:2: x\n[only the first 2 matches"), "{text}");
    let text = sandbox.call_text("search", json!({"pattern": "x", "max_matches": 100})).await;
    assert_eq!(text.lines().count(), 100, "{text}");
    sandbox.put("a.txt", format!("{}\n", "x".repeat(10_000)).repeat(100));
    let text = sandbox.call_text("search", json!({"pattern": "x"})).await;
    assert!(text.len() < 2300 && text.contains("[only the first"), "{text}");
}

#[tokio::test]
async fn invalid_patterns_are_explained() {
    let sandbox = project();
    for (pattern, expected) in [("(", "not valid"), ("", "between 1 and"), ("a\\nb", "not valid")] {
        let message = sandbox.call_error("search", json!({"pattern": pattern})).await;
        assert!(message.contains(expected), "{pattern}: {message}");
    }
    assert_eq!(
        sandbox.call_text("search", json!({"pattern": "nowhere"})).await,
        "[no line matches]\n"
    );
}

#[tokio::test]
async fn file_with_huge_line_is_skipped() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.root("huge"), "a".repeat(20_000_000)).unwrap();
    sandbox.put("small", "a\n");
    let text = sandbox.call_text("search", json!({"pattern": "^a$"})).await;
    assert_eq!(text, "small:1: a\n[files that could not be searched: 1]\n");
}

#[tokio::test]
async fn glob_applies_to_a_single_file() {
    let sandbox = project();
    for (glob, expected) in [
        ("*.txt", "b/c.txt:1: two\n"),
        ("/b/*", "b/c.txt:1: two\n"),
        ("*.rs", "[no line matches]\n"),
        ("/*.txt", "[no line matches]\n"),
    ] {
        let arguments = json!({"pattern": "two", "path": "b/c.txt", "glob": glob});
        assert_eq!(sandbox.call_text("search", arguments).await, expected, "{glob}");
    }
}
