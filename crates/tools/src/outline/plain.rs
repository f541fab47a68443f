//! A text without headings: how long it is, how it begins and how it ends.

use super::cut;

/// Lines shown of the beginning, and as many of the end.
const LINES: usize = 10;
/// Room for the line about the size.
const NOTE_BYTES: usize = 120;

/// How many lines there are, and the first and the last of them, in at most `max_bytes`.
pub(super) fn first_and_last(text: &str, max_bytes: usize) -> String {
    let (mut count, mut longest) = (0_usize, 0);
    for line in text.lines() {
        count += 1;
        longest = longest.max(line.len());
    }
    let mut outline = format!("Plain text: {count} lines, the longest has {longest} bytes.\n");
    let per_line = max_bytes.saturating_sub(NOTE_BYTES) / (2 * LINES);
    if per_line > 0 {
        let tail = count.saturating_sub(LINES).max(LINES.min(count));
        for (index, line) in text.lines().enumerate().take(LINES) {
            push(&mut outline, index + 1, line, per_line);
        }
        if tail > LINES {
            outline.push_str("…\n");
        }
        // From the end, so that a long text is not read again.
        let last: Vec<_> = text.lines().rev().take(count - tail).collect();
        for (index, line) in last.into_iter().rev().enumerate() {
            push(&mut outline, tail + index + 1, line, per_line);
        }
    }
    cut(&outline, max_bytes)
}

fn push(outline: &mut String, number: usize, line: &str, most: usize) {
    let line = format!("{number}: {line}");
    outline.push_str(&cut(&line, most - 1));
    outline.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_lines_are_shown_with_their_numbers() {
        let lines: Vec<_> = (1..=1000).map(|line| format!("entry {line}")).collect();
        let outline = first_and_last(&lines.join("\n"), 4000);
        let shown: Vec<_> = outline.lines().collect();
        assert_eq!(shown[0], "Plain text: 1000 lines, the longest has 10 bytes.");
        assert_eq!((shown[1], shown[10]), ("1: entry 1", "10: entry 10"));
        assert_eq!((shown[11], shown[12], shown[21]), ("…", "991: entry 991", "1000: entry 1000"));
        assert_eq!(shown.len(), 22);
        let short = first_and_last("a\nb", 4000);
        assert_eq!(short.lines().skip(1).collect::<Vec<_>>(), ["1: a", "2: b"]);
    }
}
