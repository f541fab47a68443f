use std::fs;

use serde_json::json;

use crate::workshop::Workshop;

fn project() -> Workshop {
    let workshop = Workshop::new();
    workshop.put(".gitignore", "ignored\n");
    workshop.put("a.rs", "one\nTwo\r\nthree two\n");
    workshop.put("b/c.txt", "two\n");
    workshop.put("ignored", "two\n");
    workshop.put("binary", b"two\n\0two\n");
    workshop.put("late-binary", [b"two\n", b"x\n".repeat(100_000).as_slice(), b"\0"].concat());
    workshop
}

#[tokio::test]
async fn matching_lines_are_found_with_their_place() {
    let workshop = project();
    assert_eq!(
        workshop.said("search", json!({"pattern": "two"})).await,
        "a.rs:3: three two\nb/c.txt:1: two\n"
    );
    assert_eq!(
        workshop.said("search", json!({"pattern": "^two$", "case_insensitive": true})).await,
        "a.rs:2: Two\nb/c.txt:1: two\n"
    );
    assert_eq!(
        workshop.said("search", json!({"pattern": "two", "glob": "*.rs"})).await,
        "a.rs:3: three two\n"
    );
    assert_eq!(
        workshop.said("search", json!({"pattern": "two", "path": "b"})).await,
        "b/c.txt:1: two\n"
    );
    assert_eq!(
        workshop.said("search", json!({"pattern": "two", "path": "ignored"})).await,
        "ignored:1: two\n"
    );
}

#[tokio::test]
async fn matches_and_bytes_are_capped_with_a_note() {
    let workshop = Workshop::with(|config| config.max_output_bytes = 2048);
    workshop.put("a.txt", "x\n".repeat(100));
    let text = workshop.said("search", json!({"pattern": "x", "max_matches": 2})).await;
    assert!(text.starts_with("a.txt:1: x\na.txt:2: x\n[only the first 2 matches"), "{text}");
    let text = workshop.said("search", json!({"pattern": "x", "max_matches": 100})).await;
    assert_eq!(text.lines().count(), 100, "{text}");
    workshop.put("a.txt", format!("{}\n", "x".repeat(10_000)).repeat(100));
    let text = workshop.said("search", json!({"pattern": "x"})).await;
    assert!(text.len() < 2300 && text.contains("[only the first"), "{text}");
}

#[tokio::test]
async fn patterns_that_make_no_sense_are_explained() {
    let workshop = project();
    for (pattern, expected) in [("(", "not valid"), ("", "between 1 and"), ("a\\nb", "not valid")] {
        let message = workshop.refusal("search", json!({"pattern": pattern})).await;
        assert!(message.contains(expected), "{pattern}: {message}");
    }
    assert_eq!(workshop.said("search", json!({"pattern": "nowhere"})).await, "[no line matches]\n");
}

#[tokio::test]
async fn a_file_that_is_one_huge_line_is_skipped() {
    let workshop = Workshop::new();
    fs::write(workshop.root("huge"), "a".repeat(20_000_000)).unwrap();
    workshop.put("small", "a\n");
    let text = workshop.said("search", json!({"pattern": "^a$"})).await;
    assert_eq!(text, "small:1: a\n[files that could not be searched: 1]\n");
}
