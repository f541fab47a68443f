//! Imports every `OpenAPI` document below a folder and prints what becomes of their operations:
//! `cargo run -p rockbot-rest --example openapi_survey -- DIR [EVERY]`
//!
//! `EVERY` reads each `EVERY`th document only. All documents get credentials for all of their security
//! schemes, so that only the documents themselves are judged. The limits of the importer are checked with an
//! independent count.
#![allow(clippy::print_stdout, reason = "the program reports to a terminal")]

mod corpus;
mod expanded;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Instant,
};

use rockbot_rest::openapi::{Document, import};
use rockbot_tools::{ArgumentSchema, registry::MAX_DEFINITION_BYTES};

use self::{
    corpus::{Corpus, options},
    expanded::expanded_size,
};

/// Maximum size of the schema of a tool, in bytes.
const MAX_SCHEMA_BYTES: usize = 48 * 1024;
/// Maximum number of subschemas of a tool, with references expanded and recursion counted once.
const MAX_EXPANDED: u64 = 10_000;

#[derive(Default)]
struct Survey {
    documents: usize,
    unreadable: BTreeMap<String, usize>,
    operations: usize,
    valid: usize,
    shortened: usize,
    excluded: usize,
    invalid: Vec<String>,
    skipped: BTreeMap<String, usize>,
    largest: usize,
    /// Largest number of expanded subschemas.
    most_expanded: u64,
    too_large: usize,
    too_expanded: usize,
    duplicates: usize,
    slowest: (u128, String),
}

fn main() -> std::io::Result<()> {
    let corpus = Corpus::from_arguments()?;
    let started = Instant::now();
    let mut survey = Survey::default();
    for file in &corpus.files {
        survey.read(file)?;
    }
    survey.print(started.elapsed().as_secs_f64());
    Ok(())
}

impl Survey {
    fn read(&mut self, file: &Path) -> std::io::Result<()> {
        let text = fs::read_to_string(file)?;
        let started = Instant::now();
        let document = match text.parse::<Document>() {
            Ok(document) => document,
            Err(error) => {
                *self.unreadable.entry(error.to_string()).or_default() += 1;
                return Ok(());
            }
        };
        self.documents += 1;
        let parsed = started.elapsed();
        let options = options(&text, &document);
        let started = Instant::now();
        let imported = import(&document, &options);
        let spent = (parsed + started.elapsed()).as_millis();
        if spent > self.slowest.0 {
            self.slowest = (spent, file.display().to_string());
        }
        self.operations += imported.operations.len() + imported.skipped.len();
        self.excluded += imported.excluded;
        for skipped in &imported.skipped {
            *self.skipped.entry(skipped.reason.clone()).or_default() += 1;
        }
        let mut names = BTreeSet::new();
        for operation in &imported.operations {
            let tool = operation.registration(None);
            let schema = tool.parameters.to_string().len();
            let expanded = expanded_size(&tool.parameters);
            let is_duplicate = !names.insert(tool.name.clone());
            self.largest = self.largest.max(schema);
            self.most_expanded = self.most_expanded.max(expanded);
            self.too_large += usize::from(schema > MAX_SCHEMA_BYTES);
            self.too_expanded += usize::from(expanded > MAX_EXPANDED);
            self.duplicates += usize::from(is_duplicate);
            self.shortened += usize::from(operation.is_shortened());
            let is_within_limits =
                schema <= MAX_SCHEMA_BYTES && expanded <= MAX_EXPANDED && !is_duplicate;
            let is_valid = is_within_limits
                && ArgumentSchema::compile(&tool.parameters).is_ok()
                && schema + tool.description.len() <= MAX_DEFINITION_BYTES
                && (1..=64).contains(&tool.name.len());
            if is_valid {
                self.valid += 1;
            } else {
                self.invalid.push(format!("{} {}", file.display(), operation.id()));
            }
        }
        Ok(())
    }

    fn print(&self, elapsed: f64) {
        println!("documents            {}", self.documents);
        for (reason, count) in &self.unreadable {
            println!("  unreadable {count:>6}  {reason}");
        }
        println!("operations           {}", self.operations);
        println!("valid tools          {}", self.valid);
        println!("  shortened schema   {}", self.shortened);
        println!("deprecated           {}", self.excluded);
        println!("largest schema       {} bytes", self.largest);
        println!("  above 48 KiB       {}", self.too_large);
        println!("most subschemas      {}, with references expanded", self.most_expanded);
        println!("  above 10,000       {}", self.too_expanded);
        println!("duplicate names      {}", self.duplicates);
        println!("slowest document     {} ms {}", self.slowest.0, self.slowest.1);
        println!("elapsed, one thread  {elapsed:.1} s");
        if let Some(mebibytes) = peak_memory() {
            println!("peak memory          {mebibytes} MiB");
        }
        println!("skipped              {}", self.skipped.values().sum::<usize>());
        for (reason, count) in &self.skipped {
            println!("  {count:>6}  {reason}");
        }
        for invalid in &self.invalid {
            println!("  invalid {invalid}");
        }
    }
}

/// Returns the largest memory that this process has used, in MiB.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes / 1024)
}
