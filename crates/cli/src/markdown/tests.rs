use super::*;

/// Draws a text in pieces of `size` characters, without escape sequences.
fn drawn(text: &str, size: usize) -> String {
    anstream::adapter::strip_str(&styled(text, size)).to_string()
}

fn styled(text: &str, size: usize) -> String {
    let mut stream = MarkdownStream::default();
    let characters: Vec<char> = text.chars().collect();
    let mut shown = String::new();
    for piece in characters.chunks(size) {
        shown.push_str(&stream.push(&piece.iter().collect::<String>()));
    }
    shown + &stream.finish()
}

const DOCUMENT: &str = "\
# Title
Some *light*, **strong** and ***both***, `code` and ``a ` b``.

## List
- one with **bold
* two
  - three
+ four
1. five

---
> quoted
```rust
let x = \"**no**\";
# no heading
```
snake_case_name and 2 * 3 * 4 and \\*escaped\\*
";

const DRAWN: &str = "\
Title
Some light, strong and both, code and a ` b.

List
• one with **bold
• two
  • three
• four
1. five

────────────────────────
│ quoted
    rust
    let x = \"**no**\";
    # no heading
snake_case_name and 2 * 3 * 4 and *escaped*
";

#[test]
fn pieces_of_any_size_are_drawn_alike() {
    for size in [1, 2, 3, 7, 1000] {
        assert_eq!(drawn(DOCUMENT, size), DRAWN, "size {size}");
    }
}

#[test]
fn styles_are_opened_and_closed() {
    let shown = styled("a **b** `c`\n# d\n", 1);
    for part in ["\u{1b}[1mb\u{1b}[0m", "\u{1b}[32mc\u{1b}[0m", "\u{1b}[1m\u{1b}[4md\u{1b}[0m\n"] {
        assert!(shown.contains(part), "{part:?} in {shown:?}");
    }
}

#[test]
fn plain_text_is_drawn_at_once() {
    let mut stream = MarkdownStream::default();
    assert_eq!(stream.push("Hel"), "Hel");
    assert_eq!(stream.push("lo *"), "lo ");
    assert_eq!(stream.push("wor"), "");
    assert!(stream.push("ld* and").contains("world"));
    assert_eq!(stream.finish(), "");
}

#[test]
fn unclosed_marker_is_printed() {
    for text in ["**kwargs", "`tick", "_", "***", "a ** b", "\\", "#", "-", "```", "~~"] {
        let expected = match text {
            "***" => "────────────────────────\n",
            "```" => "",
            text => text,
        };
        assert_eq!(drawn(text, 1), expected, "{text}");
    }
}

#[test]
fn text_that_never_closes_is_not_held_for_ever() {
    let mut stream = MarkdownStream::default();
    let mut shown = 0;
    for _ in 0..100 {
        shown += stream.push(&format!("**{}", "x".repeat(100))).len();
        assert!(stream.pending.len() <= MAX_HELD_BYTES + 102, "{}", stream.pending.len());
    }
    assert!(shown > 8_000);
    let mut spaces = MarkdownStream::default();
    (0..100).for_each(|_| drop(spaces.push(&" ".repeat(100))));
    assert!(spaces.pending.len() <= MAX_HELD_BYTES + 100);
}

#[test]
fn unclosed_fence_ends_with_its_text() {
    let mut stream = MarkdownStream::default();
    let first = stream.push("```\ncode") + &stream.finish();
    assert!(first.contains("    ") && first.contains("code"));
    assert_eq!(stream.push("**plain**\n"), "\u{1b}[1mplain\u{1b}[0m\n");
}
