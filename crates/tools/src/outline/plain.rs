//! Outlines of plain text: its size, beginning and end.

use super::truncate;

/// Number of lines shown at the beginning, and at the end.
const LINES: usize = 10;
/// Size reserved for the first line of the outline, in bytes.
const NOTE_BYTES: usize = 120;

/// Returns the number of lines, and the first and the last lines, in at most `max_bytes`.
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
        // In reverse, so that a long text is not scanned again.
        let last: Vec<_> = text.lines().rev().take(count - tail).collect();
        for (index, line) in last.into_iter().rev().enumerate() {
            push(&mut outline, tail + index + 1, line, per_line);
        }
    }
    truncate(&outline, max_bytes)
}

fn push(outline: &mut String, number: usize, line: &str, max_bytes: usize) {
    let line = format!("{number}: {line}");
    outline.push_str(&truncate(&line, max_bytes - 1));
    outline.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_lines_are_numbered() {
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
