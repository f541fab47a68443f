//! Outlines of Markdown.

use crate::chunk::Section;

const TITLE: &str = "## Document Outline\n";

/// Returns a nested list of the headings below `## Document Outline`, each with its location and size,
/// in at most `max_bytes`. The deepest headings are omitted first, and omitted headings are counted.
#[must_use]
pub fn document_outline(
    sections: &[Section],
    location: impl Fn(&Section) -> String,
    max_bytes: usize,
) -> String {
    let deepest = sections.iter().map(|section| section.level).max().unwrap_or(0);
    for level in (2..=deepest).rev() {
        let shown = sections.iter().filter(|section| section.level <= level);
        let text = list(shown, sections.len(), &location, max_bytes);
        if let Ok(text) = text {
            return text;
        }
    }
    let first = sections.iter().map(|section| section.level).min().unwrap_or(1);
    let shown = sections.iter().filter(|section| section.level == first);
    list(shown, sections.len(), &location, max_bytes).unwrap_or_else(|truncated| truncated)
}

/// Returns the list of the given headings, or as an error the part of it that fits.
fn list<'a>(
    shown: impl Iterator<Item = &'a Section>,
    total: usize,
    location: impl Fn(&Section) -> String,
    max_bytes: usize,
) -> Result<String, String> {
    let note = |count: usize| match total - count {
        0 => String::new(),
        missing => format!("- … {missing} more headings\n"),
    };
    let mut text = TITLE.to_owned();
    let mut count = 0;
    for section in shown {
        let indent = "  ".repeat(usize::from(section.level) - 1);
        let title = if section.title.is_empty() { "(untitled)" } else { &section.title };
        let line =
            format!("{indent}- **{title}** → {} ({} chars)\n", location(section), section.chars);
        if text.len() + line.len() + note(0).len() > max_bytes {
            text.push_str(&note(count));
            return Err(super::truncate(&text, max_bytes));
        }
        text.push_str(&line);
        count += 1;
    }
    text.push_str(&note(count));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::sections;

    #[test]
    fn deepest_headings_are_omitted_first() {
        let text = "# A\n## B\n### C\n### D\n# E\n";
        let location = |section: &Section| format!("line {}", section.line);
        let all = document_outline(&sections(text), location, 1000);
        let lines: Vec<_> = all.lines().collect();
        assert_eq!(lines[0], "## Document Outline");
        assert_eq!(lines[3], "    - **C** → line 3 (6 chars)");
        assert_eq!(lines[5], "- **E** → line 5 (4 chars)");
        let some = document_outline(&sections(text), location, all.len() - 20);
        assert!(some.contains("**B**") && !some.contains("**C**"), "{some}");
        assert!(some.ends_with("- … 2 more headings\n"), "{some}");
    }
}
