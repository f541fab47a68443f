//! Where a text is cut so that no piece is over a limit.

use std::ops::Range;

use super::structure::Level;

/// The ways to split, best first.
const WAYS: [Way; 7] = [
    Way::Before(Level::Heading(1)),
    Way::Before(Level::Heading(2)),
    Way::Before(Level::Heading(3)),
    Way::Before(Level::Blank),
    Way::Before(Level::Fence),
    Way::Lines,
    Way::Characters,
];

#[derive(Debug, Clone, Copy)]
enum Way {
    Before(Level),
    Lines,
    Characters,
}

/// Where the pieces of at most `max_chars` characters end, in order, the last at the text's end.
pub(super) fn cuts(text: &str, breaks: &[(usize, Level)], max_chars: usize) -> Vec<usize> {
    let mut packing =
        Packing { text, breaks, max: max_chars.max(1), ends: Vec::new(), start: 0, chars: 0 };
    packing.add(0..text.len(), &WAYS);
    packing.close(text.len());
    packing.ends
}

/// Fills pieces with parts of the text, in order.
struct Packing<'a> {
    text: &'a str,
    breaks: &'a [(usize, Level)],
    max: usize,
    ends: Vec<usize>,
    /// Where the open piece begins.
    start: usize,
    /// How much is in it.
    chars: usize,
}

impl Packing<'_> {
    /// Adds a part to the open piece, or begins another piece with it, or splits it in the first of
    /// these ways.
    fn add(&mut self, part: Range<usize>, ways: &[Way]) {
        let chars = self.text[part.clone()].chars().count();
        if self.chars + chars > self.max {
            self.close(part.start);
        }
        if self.chars + chars <= self.max {
            self.chars += chars;
            return;
        }
        match ways {
            [Way::Before(level), finer @ ..] => {
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
            [Way::Lines, finer @ ..] => {
                let mut start = part.start;
                for line in self.text[part].split_inclusive('\n') {
                    self.add(start..start + line.len(), finer);
                    start += line.len();
                }
            }
            [Way::Characters, ..] | [] => {
                for (offset, _) in self.text[part.clone()].char_indices() {
                    if self.chars == self.max {
                        self.close(part.start + offset);
                    }
                    self.chars += 1;
                }
            }
        }
    }

    /// Ends the open piece there, if it has anything in it.
    fn close(&mut self, at: usize) {
        if at > self.start {
            self.ends.push(at);
        }
        (self.start, self.chars) = (at, 0);
    }
}
