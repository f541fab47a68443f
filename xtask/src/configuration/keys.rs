//! What the programs have in common: a section that is the same in several of them is told once.

use std::collections::BTreeSet;

use super::defaults::{Defaults, Entry, Table};

/// A section as it is told: one part for each group of programs that have keys of it in common.
#[derive(Debug)]
pub(super) struct Section {
    /// As it is written in the files, with its brackets.
    pub(super) header: String,
    /// Whether it is commented out in all of them.
    pub(super) is_example: bool,
    pub(super) parts: Vec<Part>,
}

/// A section in programs that have keys of it in common.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) programs: BTreeSet<String>,
    /// What is said of it, each with who says it.
    pub(super) about: Vec<(String, BTreeSet<String>)>,
    pub(super) rows: Vec<Row>,
}

/// A key as some of the programs have it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) entry: Entry,
    pub(super) programs: BTreeSet<String>,
}

impl Row {
    /// Whether it says the same; examples may differ.
    fn says(&self, entry: &Entry) -> bool {
        let Entry { key, value, is_example, meaning } = &self.entry;
        *key == entry.key
            && *is_example == entry.is_example
            && *meaning == entry.meaning
            && (*is_example || *value == entry.value)
    }
}

/// The sections of all programs, in the order in which they first come.
pub(super) fn sections(programs: &[Defaults]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for program in programs {
        for table in &program.tables {
            let at = sections.iter().position(|section| section.header == table.header);
            let at = at.unwrap_or_else(|| {
                let (header, is_example) = (table.header.clone(), true);
                sections.push(Section { header, is_example, parts: Vec::new() });
                sections.len() - 1
            });
            sections[at].is_example &= table.is_example;
            sections[at].add(&program.program, table);
        }
    }
    sections
}

impl Section {
    /// Adds what a program says to the part that says some of it too. A program that joins two parts
    /// makes one of them.
    fn add(&mut self, program: &str, table: &Table) {
        let says_some = |part: &Part| {
            let says = |entry| part.rows.iter().any(|row| row.says(entry));
            table.entries.iter().any(says)
        };
        let (common, apart): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parts).into_iter().partition(says_some);
        let at = common.first().and_then(|first| {
            apart.iter().position(|part| part.programs.first() > first.programs.first())
        });
        let mut whole = Part::default();
        for part in common {
            for (words, programs) in part.about {
                programs.iter().for_each(|program| whole.speak(program, &words));
            }
            whole.programs.extend(part.programs);
            whole.rows.extend(part.rows);
        }
        whole.add(program, table);
        self.parts = apart;
        self.parts.insert(at.unwrap_or(self.parts.len()), whole);
    }
}

impl Part {
    fn add(&mut self, program: &str, table: &Table) {
        self.programs.insert(program.to_owned());
        self.speak(program, &table.about);
        // A key that is new goes behind the one that it follows in its file.
        let mut next = 0;
        for entry in &table.entries {
            if let Some(at) = self.rows.iter().position(|row| row.says(entry)) {
                self.rows[at].programs.insert(program.to_owned());
                next = at + 1;
                continue;
            }
            let like = self.rows.iter().rposition(|row| row.entry.key == entry.key);
            let at = like.map_or(next, |like| like + 1);
            let programs = [program.to_owned()].into();
            self.rows.insert(at, Row { entry: entry.clone(), programs });
            next = at + 1;
        }
    }

    fn speak(&mut self, program: &str, words: &str) {
        if words.is_empty() {
            return;
        }
        let known = self.about.iter_mut().find(|(known, _)| known == words);
        match known {
            Some((_, programs)) => {
                programs.insert(program.to_owned());
            }
            None => self.about.push((words.to_owned(), [program.to_owned()].into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let read = |(program, text): &(&str, &str)| Defaults::parse(*program, text).unwrap();
        let programs: Vec<_> = files.iter().map(read).collect();
        let mut told = Vec::new();
        for section in sections(&programs) {
            for part in section.parts {
                let names = Vec::from_iter(part.programs).join("+");
                told.push(format!("{} {names}", section.header));
                for row in part.rows {
                    let names = Vec::from_iter(row.programs).join("+");
                    told.push(format!("{}={} {names}", row.entry.key, row.entry.value));
                }
            }
        }
        told
    }

    #[test]
    fn what_is_the_same_in_several_programs_is_told_once() {
        let told = told(&[
            ("p", "\n[a]\n# X.\nx = 1\n# Y.\ny = 1\n# Z.\n# z = 1\n"),
            ("q", "\n[a]\n# X.\nx = 1\n# New.\nnew = 1\n# Y.\ny = 2\n# Z.\n# z = 2\n"),
        ]);
        assert_eq!(told, ["[a] p+q", "x=1 p+q", "new=1 q", "y=1 p", "y=2 q", "z=1 p+q"]);
    }

    #[test]
    fn programs_with_nothing_in_common_are_told_apart_unless_another_joins_them() {
        let apart = [
            ("p", "\n[a]\n# X.\nx = 1\n"),
            ("q", "\n[a]\n# Another X.\nx = 1\n\n[b]\n# Y.\ny = 1\n"),
            ("r", "\n[a]\n# X.\nx = 1\n# Another Y.\ny = 1\n"),
        ];
        assert_eq!(
            told(&apart),
            ["[a] p+r", "x=1 p+r", "y=1 r", "[a] q", "x=1 q", "[b] q", "y=1 q"]
        );
        let joined = [
            ("p", "\n[a]\n# X.\nx = 1\n"),
            ("q", "\n[a]\n# Y.\ny = 1\n"),
            ("r", "\n[a]\n# X.\nx = 1\n# Y.\ny = 1\n"),
        ];
        assert_eq!(told(&joined), ["[a] p+q+r", "x=1 p+r", "y=1 q+r"]);
    }
}
