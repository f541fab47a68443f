use serde_json::json;

use crate::workshop::Workshop;

#[tokio::test]
async fn a_file_is_read_as_it_is() {
    let workshop = Workshop::new();
    workshop.put("src/a.txt", "one\r\ntwo\n\nfour");
    for path in ["src/a.txt", "./src//a.txt", "src/../src/a.txt"] {
        assert_eq!(workshop.said("read_file", json!({"path": path})).await, "one\r\ntwo\n\nfour");
    }
    workshop.put("empty", "");
    assert_eq!(workshop.said("read_file", json!({"path": "empty"})).await, "[the file is empty]");
}

#[tokio::test]
async fn pages_say_how_to_read_on_until_the_end() {
    let workshop = Workshop::new();
    let all: String = (1..=10).map(|number| format!("line {number}\n")).collect();
    workshop.put("a.txt", &all);
    let page = workshop.said("read_file", json!({"path": "a.txt", "offset": 3, "limit": 2})).await;
    assert_eq!(
        page,
        "line 3\nline 4\n[lines 3 to 4 of a file of 71 bytes; read on with offset 5]\n"
    );
    let page = workshop.said("read_file", json!({"path": "a.txt", "offset": 9, "limit": 2})).await;
    assert_eq!(page, "line 9\nline 10\n");
    let message = workshop.refusal("read_file", json!({"path": "a.txt", "offset": 11})).await;
    assert_eq!(message, "a.txt has 10 lines; offset 11 is past its end");
    let message = workshop.refusal("read_file", json!({"path": "a.txt", "offset": 99})).await;
    assert_eq!(message, "a.txt has 10 lines; offset 99 is past its end");
}

#[tokio::test]
async fn a_large_file_is_cut_at_a_line() {
    let workshop = Workshop::with(|config| config.max_read_bytes = 20);
    workshop.put("a.txt", "12345678\n".repeat(100_000));
    let page = workshop.said("read_file", json!({"path": "a.txt", "offset": 99_990})).await;
    assert!(page.starts_with("12345678\n12345678\n[lines 99990 to 99991"), "{page}");
    assert!(page.contains("offset 99992"), "{page}");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_cut_at_a_character() {
    let workshop = Workshop::with(|config| config.max_read_bytes = 5);
    workshop.put("a.txt", "äää\nnext\n");
    let page = workshop.said("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(page, "ää\n[line 1 is too long and is cut; lines after it: offset 2]\n");
    let page = workshop.said("read_file", json!({"path": "a.txt", "offset": 2})).await;
    assert_eq!(page, "next\n");
}

#[tokio::test]
async fn binary_files_are_refused_and_wrong_utf8_is_shown() {
    let workshop = Workshop::new();
    workshop.put("binary", b"\x7fELF\0\0");
    let message = workshop.refusal("read_file", json!({"path": "binary"})).await;
    assert_eq!(message, "binary is a binary file of 6 bytes, not text");
    workshop.put("latin1", b"caf\xe9\n");
    let text = workshop.said("read_file", json!({"path": "latin1"})).await;
    assert!(text.starts_with("caf\u{fffd}\n[the file is not valid UTF-8"), "{text}");
}

#[tokio::test]
async fn what_is_no_file_is_explained() {
    let workshop = Workshop::new();
    workshop.put("src/a.txt", "");
    let message = workshop.refusal("read_file", json!({"path": "src"})).await;
    assert_eq!(message, "src is a directory; see what is in it with list_files");
    let message = workshop.refusal("read_file", json!({"path": "b.txt"})).await;
    assert_eq!(message, "b.txt does not exist; see what is there with list_files");
    let message = workshop.refusal("read_file", json!({"path": "/src/a.txt"})).await;
    assert!(message.contains("relative to the root"), "{message}");
}
