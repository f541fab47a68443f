//! Merges the sections of all programs, so that shared keys are documented once.

use std::collections::BTreeSet;

use super::defaults::{Defaults, Entry, Table};

/// A section with one part for each group of programs that share keys.
#[derive(Debug)]
pub(super) struct Section {
    /// Header as in the files, with brackets.
    pub(super) header: String,
    /// The section is commented out in all programs.
    pub(super) is_example: bool,
    pub(super) parts: Vec<Part>,
}

/// The section of a group of programs that share keys.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) programs: BTreeSet<String>,
    /// Descriptions of the section, each with its programs.
    pub(super) descriptions: Vec<(String, BTreeSet<String>)>,
    pub(super) rows: Vec<Row>,
}

/// A key that is the same in some of the programs.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) entry: Entry,
    pub(super) programs: BTreeSet<String>,
}

impl Row {
    /// Returns whether the keys are the same. Examples may differ.
    fn matches(&self, entry: &Entry) -> bool {
        let Entry { key, value, is_example, description } = &self.entry;
        *key == entry.key
            && *is_example == entry.is_example
            && *description == entry.description
            && (*is_example || *value == entry.value)
    }
}

/// Returns the sections of all programs in the order of their first occurrence.
pub(super) fn sections(programs: &[Defaults]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for program in programs {
        for table in &program.tables {
            let index = sections.iter().position(|section| section.header == table.header);
            let index = index.unwrap_or_else(|| {
                let (header, is_example) = (table.header.clone(), true);
                sections.push(Section { header, is_example, parts: Vec::new() });
                sections.len() - 1
            });
            sections[index].is_example &= table.is_example;
            sections[index].add(&program.program, table);
        }
    }
    sections
}

impl Section {
    /// Adds the table of a program to the part that shares keys with it. A program that shares keys with
    /// several parts merges them.
    fn add(&mut self, program: &str, table: &Table) {
        let shares_keys = |part: &Part| {
            let is_shared = |entry| part.rows.iter().any(|row| row.matches(entry));
            table.entries.iter().any(is_shared)
        };
        let (sharing, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parts).into_iter().partition(shares_keys);
        let index = sharing.first().and_then(|first| {
            others.iter().position(|part| part.programs.first() > first.programs.first())
        });
        let mut merged = Part::default();
        for part in sharing {
            for (description, programs) in part.descriptions {
                programs.iter().for_each(|program| merged.add_description(program, &description));
            }
            merged.programs.extend(part.programs);
            merged.rows.extend(part.rows);
        }
        merged.add(program, table);
        self.parts = others;
        self.parts.insert(index.unwrap_or(self.parts.len()), merged);
    }
}

impl Part {
    fn add(&mut self, program: &str, table: &Table) {
        self.programs.insert(program.to_owned());
        self.add_description(program, &table.description);
        // A new key is inserted after its predecessor in the file.
        let mut next = 0;
        for entry in &table.entries {
            if let Some(index) = self.rows.iter().position(|row| row.matches(entry)) {
                self.rows[index].programs.insert(program.to_owned());
                next = index + 1;
                continue;
            }
            let variant = self.rows.iter().rposition(|row| row.entry.key == entry.key);
            let index = variant.map_or(next, |variant| variant + 1);
            let programs = [program.to_owned()].into();
            self.rows.insert(index, Row { entry: entry.clone(), programs });
            next = index + 1;
        }
    }

    fn add_description(&mut self, program: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let known = self.descriptions.iter_mut().find(|(known, _)| known == text);
        match known {
            Some((_, programs)) => {
                programs.insert(program.to_owned());
            }
            None => self.descriptions.push((text.to_owned(), [program.to_owned()].into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a line for each part and each row.
    fn summary(files: &[(&str, &str)]) -> Vec<String> {
        let read = |(program, text): &(&str, &str)| Defaults::parse(*program, text).unwrap();
        let programs: Vec<_> = files.iter().map(read).collect();
        let mut summary = Vec::new();
        for section in sections(&programs) {
            for part in section.parts {
                let names = Vec::from_iter(part.programs).join("+");
                summary.push(format!("{} {names}", section.header));
                for row in part.rows {
                    let names = Vec::from_iter(row.programs).join("+");
                    summary.push(format!("{}={} {names}", row.entry.key, row.entry.value));
                }
            }
        }
        summary
    }

    #[test]
    fn keys_of_several_programs_are_merged() {
        let summary = summary(&[
            ("p", "\n[a]\n# X.\nx = 1\n# Y.\ny = 1\n# Z.\n# z = 1\n"),
            ("q", "\n[a]\n# X.\nx = 1\n# New.\nnew = 1\n# Y.\ny = 2\n# Z.\n# z = 2\n"),
        ]);
        assert_eq!(summary, ["[a] p+q", "x=1 p+q", "new=1 q", "y=1 p", "y=2 q", "z=1 p+q"]);
    }

    #[test]
    fn programs_without_shared_keys_form_separate_parts() {
        let separate = [
            ("p", "\n[a]\n# X.\nx = 1\n"),
            ("q", "\n[a]\n# Another X.\nx = 1\n\n[b]\n# Y.\ny = 1\n"),
            ("r", "\n[a]\n# X.\nx = 1\n# Another Y.\ny = 1\n"),
        ];
        assert_eq!(
            summary(&separate),
            ["[a] p+r", "x=1 p+r", "y=1 r", "[a] q", "x=1 q", "[b] q", "y=1 q"]
        );
        let merged = [
            ("p", "\n[a]\n# X.\nx = 1\n"),
            ("q", "\n[a]\n# Y.\ny = 1\n"),
            ("r", "\n[a]\n# X.\nx = 1\n# Y.\ny = 1\n"),
        ];
        assert_eq!(summary(&merged), ["[a] p+q+r", "x=1 p+r", "y=1 q+r"]);
    }
}
