use rockbot_tools::ContentBlock;
use rockbot_tools::layers::stack::DEFAULT_MAX_RESULT_BYTES;
use serde_json::json;

use crate::sandbox::Sandbox;

#[tokio::test]
async fn file_is_returned_unchanged() {
    let sandbox = Sandbox::new();
    sandbox.put("src/a.txt", "one\r\ntwo\n\nfour");
    for path in ["src/a.txt", "./src//a.txt", "src/../src/a.txt"] {
        assert_eq!(
            sandbox.call_text("read_file", json!({"path": path})).await,
            "one\r\ntwo\n\nfour"
        );
    }
    sandbox.put("empty", "");
    assert_eq!(
        sandbox.call_text("read_file", json!({"path": "empty"})).await,
        "[the file is empty]"
    );
}

#[tokio::test]
async fn page_names_next_offset() {
    let sandbox = Sandbox::new();
    let all: String = (1..=10).map(|number| format!("line {number}\n")).collect();
    sandbox.put("a.txt", &all);
    let page =
        sandbox.call_text("read_file", json!({"path": "a.txt", "offset": 3, "limit": 2})).await;
    assert_eq!(
        page,
        "line 3\nline 4\n[lines 3 to 4 of a file of 71 bytes; continue with offset 5]\n"
    );
    let page =
        sandbox.call_text("read_file", json!({"path": "a.txt", "offset": 9, "limit": 2})).await;
    assert_eq!(page, "line 9\nline 10\n");
    let message = sandbox.call_error("read_file", json!({"path": "a.txt", "offset": 11})).await;
    assert_eq!(message, "a.txt has 10 lines; offset 11 is past its end");
    let message = sandbox.call_error("read_file", json!({"path": "a.txt", "offset": 99})).await;
    assert_eq!(message, "a.txt has 10 lines; offset 99 is past its end");
}

#[tokio::test]
async fn large_file_is_truncated_at_a_line() {
    let sandbox = Sandbox::with(|config| config.max_read_bytes = 20);
    sandbox.put("a.txt", "12345678\n".repeat(100_000));
    let page = sandbox.call_text("read_file", json!({"path": "a.txt", "offset": 99_990})).await;
    assert!(page.starts_with("12345678\n12345678\n[lines 99990 to 99991"), "{page}");
    assert!(page.contains("offset 99992"), "{page}");
}

#[tokio::test]
async fn long_line_is_truncated_at_a_character() {
    let sandbox = Sandbox::with(|config| config.max_read_bytes = 5);
    sandbox.put("a.txt", "äää\nnext\n");
    let page = sandbox.call_text("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(page, "ää\n[line 1 is too long and is truncated; continue with offset 2]\n");
    let page = sandbox.call_text("read_file", json!({"path": "a.txt", "offset": 2})).await;
    assert_eq!(page, "next\n");
}

#[tokio::test]
async fn default_page_with_its_note_fits_into_a_result() {
    let sandbox = Sandbox::new();
    sandbox.put("a.txt", "123456789 abcdefghij\n".repeat(110_000));
    sandbox.put("invalid.txt", b"caf\xe9 \xe9\xe9\xe9\xe9\n".repeat(110_000));
    for (path, marker) in [("a.txt", "continue with offset"), ("invalid.txt", "not valid UTF-8")] {
        let mut offset = 1;
        for _ in 0..2 {
            let arguments = json!({"path": path, "offset": offset});
            let page = sandbox.call_text("read_file", arguments).await;
            assert!(page.len() <= DEFAULT_MAX_RESULT_BYTES, "{} bytes", page.len());
            let notes = &page[page.len() - 300..];
            assert!(notes.contains(marker) && notes.ends_with("]\n"), "{notes}");
            let next = notes.split("continue with offset ").nth(1).expect("an offset");
            let next: usize = next.split(']').next().expect("a number").parse().unwrap();
            let lines = page.lines().filter(|line| !line.starts_with('[')).count();
            assert_eq!(next, offset + lines, "no line is skipped");
            offset = next;
        }
    }
}

#[tokio::test]
async fn binary_file_is_rejected() {
    let sandbox = Sandbox::new();
    sandbox.put("binary", b"\x7fELF\0\0");
    let message = sandbox.call_error("read_file", json!({"path": "binary"})).await;
    assert_eq!(message, "binary is a binary file of 6 bytes, not text");
    sandbox.put("latin1", b"caf\xe9\n");
    let text = sandbox.call_text("read_file", json!({"path": "latin1"})).await;
    assert!(text.starts_with("caf\u{fffd}\n[the file is not valid UTF-8"), "{text}");
}

#[tokio::test]
async fn read_errors_are_explained() {
    let sandbox = Sandbox::new();
    sandbox.put("src/a.txt", "");
    let message = sandbox.call_error("read_file", json!({"path": "src"})).await;
    assert_eq!(message, "src is a directory; list its content with list_files");
    let message = sandbox.call_error("read_file", json!({"path": "b.txt"})).await;
    assert_eq!(message, "b.txt does not exist; list existing files with list_files");
    let message = sandbox.call_error("read_file", json!({"path": "/src/a.txt"})).await;
    assert!(message.contains("relative to the root"), "{message}");
}

/// A PNG file of this size, as far as its first bytes tell.
fn png(bytes: usize) -> Vec<u8> {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(bytes, 0);
    image
}

#[tokio::test]
async fn image_is_returned_as_image() {
    let sandbox = Sandbox::with(|config| config.max_read_bytes = 400);
    sandbox.put("picture.txt", png(300));
    let result = sandbox.call("read_file", json!({"path": "picture.txt"})).await.unwrap();
    let [ContentBlock::Image { mime_type, data }] = &result.content[..] else {
        panic!("{result:?}")
    };
    assert_eq!((mime_type.as_str(), data.len()), ("image/png", 400));
    sandbox.put("large.png", png(301));
    let message = sandbox.call_error("read_file", json!({"path": "large.png"})).await;
    assert!(
        message.starts_with("large.png is an image of 301 bytes, and at most 300"),
        "{message}"
    );
}
