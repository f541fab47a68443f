//! Selection of chunk boundaries.

use std::ops::Range;

use super::structure::Level;

/// Kinds of boundaries, in order of preference.
const BOUNDARIES: [Boundary; 7] = [
    Boundary::Before(Level::Heading(1)),
    Boundary::Before(Level::Heading(2)),
    Boundary::Before(Level::Heading(3)),
    Boundary::Before(Level::Blank),
    Boundary::Before(Level::Fence),
    Boundary::Lines,
    Boundary::Characters,
];

#[derive(Debug, Clone, Copy)]
enum Boundary {
    Before(Level),
    Lines,
    Characters,
}

/// Returns the ends of chunks of at most `max_chars` characters, in order. The last is the text's end.
pub(super) fn boundaries(text: &str, breaks: &[(usize, Level)], max_chars: usize) -> Vec<usize> {
    let mut builder =
        ChunkBuilder { text, breaks, max: max_chars.max(1), ends: Vec::new(), start: 0, chars: 0 };
    builder.add(0..text.len(), &BOUNDARIES);
    builder.close(text.len());
    builder.ends
}

/// Fills chunks with parts of the text, in order.
struct ChunkBuilder<'a> {
    text: &'a str,
    breaks: &'a [(usize, Level)],
    max: usize,
    ends: Vec<usize>,
    /// Start of the open chunk.
    start: usize,
    /// Characters in the open chunk.
    chars: usize,
}

impl ChunkBuilder<'_> {
    /// Adds a part to the open chunk, or starts the next chunk with it, or splits it at the first of
    /// these boundaries.
    fn add(&mut self, part: Range<usize>, kinds: &[Boundary]) {
        let chars = self.text[part.clone()].chars().count();
        if self.chars + chars > self.max {
            self.close(part.start);
        }
        if self.chars + chars <= self.max {
            self.chars += chars;
            return;
        }
        match kinds {
            [Boundary::Before(level), finer @ ..] => {
                let all = self.breaks;
                let from = all.partition_point(|(at, _)| *at <= part.start);
                let to = all.partition_point(|(at, _)| *at < part.end);
                let inside = all[from..to].iter().filter(|(_, other)| other == level);
                let mut start = part.start;
                for (at, _) in inside {
                    self.add(start..*at, finer);
                    start = *at;
                }
                self.add(start..part.end, finer);
            }
            [Boundary::Lines, finer @ ..] => {
                let mut start = part.start;
                for line in self.text[part].split_inclusive('\n') {
                    self.add(start..start + line.len(), finer);
                    start += line.len();
                }
            }
            [Boundary::Characters, ..] | [] => {
                for (offset, _) in self.text[part.clone()].char_indices() {
                    if self.chars == self.max {
                        self.close(part.start + offset);
                    }
                    self.chars += 1;
                }
            }
        }
    }

    /// Ends the open chunk at `at`, unless it is empty.
    fn close(&mut self, at: usize) {
        if at > self.start {
            self.ends.push(at);
        }
        (self.start, self.chars) = (at, 0);
    }
}
