//! `search`: searches the files below a directory for a regular expression.

use std::{fmt::Write, fs, io, path::Path, sync::Arc};

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use rockbot_tools::{Executed, ToolFailure, ToolHints, ToolResult};
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::json;

use super::{
    config::FilesConfig,
    definition,
    file_tool::FileTool,
    path::{RelativePath, escaped},
    root::{Root, access_failure, open_regular},
    stop::{StopCondition, StoppableReader},
    walk::{Flow, Kind, Walk},
};

/// Maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 4096;
/// Maximum size of a compiled pattern, and of the cache of its automaton.
const MAX_COMPILED_BYTES: usize = 4 * 1024 * 1024;
/// Maximum length of a searched line; a file with a longer one is skipped.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Maximum length of an excerpt of a line, in characters.
const MAX_EXCERPT_CHARS: usize = 400;
/// Maximum number of characters before the match in a truncated excerpt.
const CONTEXT_CHARS_BEFORE_MATCH: usize = 100;
/// Number of returned matches if the call names none.
const DEFAULT_MATCHES: usize = 200;
/// Maximum number of returned matches.
const MAX_MATCHES: usize = 5_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    case_insensitive: bool,
    max_matches: Option<usize>,
}

pub(super) fn search_files(root: Arc<Root>, config: &FilesConfig) -> FileTool<Arguments, usize> {
    let properties = json!({
        "pattern": {
            "type": "string", "minLength": 1, "maxLength": MAX_PATTERN_BYTES,
            "description": "Regular expression (Rust syntax: no look-around, no \
                back-references), matched within one line.",
        },
        "path": {
            "type": "string",
            "description": "File or directory to search, relative to the root of the files. \
                Default: the root.",
        },
        "glob": {
            "type": "string", "maxLength": 1024,
            "description": "Only files that match this glob, such as `*.rs` (at any depth) or \
                `/src/**/*.rs` (from the root).",
        },
        "case_insensitive": {"type": "boolean", "description": "Default false."},
        "max_matches": {
            "type": "integer", "minimum": 1, "maximum": MAX_MATCHES,
            "description": "Maximum number of matching lines to return. Default 200.",
        },
    });
    let registration = definition::registration(
        "search",
        "Search in files",
        "Search text files for a regular expression. Returns matching lines as \
         `path:line: text`, sorted by path; long lines are truncated. Binary files and files \
         hidden by .gitignore are omitted.",
        &properties,
        &["pattern"],
        ToolHints::READ_ONLY,
    );
    FileTool { registration, root, limit: config.max_output_bytes, run: search }
}

fn search(
    root: &Root,
    arguments: &Arguments,
    max_bytes: usize,
    stop: &StopCondition,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(arguments.path.as_deref().unwrap_or("."))?;
    let max_matches = arguments.max_matches.unwrap_or(DEFAULT_MATCHES).clamp(1, MAX_MATCHES);
    let mut search = Search {
        matcher: compile(&arguments.pattern, arguments.case_insensitive)?,
        searcher: searcher(),
        stop,
        max_matches,
        max_bytes,
        text: String::new(),
        matches: 0,
        files: 0,
        skipped: 0,
        truncated: false,
    };
    let metadata =
        root.dir().metadata(path.as_path()).map_err(|error| access_failure(&path, error))?;
    let mut incomplete_directories = 0;
    let mut walk = Walk::new(stop, arguments.glob.as_deref())?;
    if metadata.is_dir() {
        walk.run(root, &path, &mut |entry| {
            if entry.kind != Kind::File {
                return Ok(Flow::Continue);
            }
            match open_regular(entry.parent, Path::new(entry.name), OFlags::NOFOLLOW) {
                Ok(Some(file)) => search.search_file(file, &escaped(entry.path)),
                // The file was removed or is not readable.
                Ok(None) | Err(_) => {
                    search.skipped += 1;
                    Ok(Flow::Continue)
                }
            }
        })?;
        incomplete_directories = walk.incomplete_directories;
    } else {
        let file = root.open_file(&path)?;
        if walk.selects(path.as_path()) {
            search.search_file(file, &path.to_string())?;
        }
    }
    Ok(search.into_result(incomplete_directories))
}

fn compile(pattern: &str, case_insensitive: bool) -> Result<RegexMatcher, ToolFailure> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolFailure::invalid(format!(
            "the pattern must have between 1 and {MAX_PATTERN_BYTES} bytes"
        )));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(case_insensitive)
        .multi_line(true)
        .crlf(true)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build(pattern)
        .map_err(|error| ToolFailure::invalid(format!("the pattern is not valid: {error}")))
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        .build()
}

/// A running search and its matches.
struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    stop: &'a StopCondition,
    max_matches: usize,
    max_bytes: usize,
    text: String,
    matches: usize,
    files: usize,
    skipped: usize,
    truncated: bool,
}

impl Search<'_> {
    fn search_file(&mut self, file: fs::File, path: &str) -> Result<Flow, ToolFailure> {
        let mut sink = FileSink {
            matcher: &self.matcher,
            path,
            max_matches: self.max_matches - self.matches,
            max_bytes: self.max_bytes - self.text.len(),
            text: String::new(),
            matches: 0,
            truncated: false,
            binary: false,
        };
        let reader = StoppableReader::new(file, self.stop);
        let outcome = self.searcher.search_reader(&self.matcher, reader, &mut sink);
        self.stop.check(Executed::Yes)?;
        if outcome.is_err() || sink.binary {
            self.skipped += usize::from(!sink.binary);
            return Ok(Flow::Continue);
        }
        self.text.push_str(&sink.text);
        self.matches += sink.matches;
        self.files += usize::from(sink.matches > 0);
        self.truncated = sink.truncated;
        Ok(if self.truncated { Flow::End } else { Flow::Continue })
    }

    fn into_result(mut self, incomplete_directories: usize) -> ToolResult {
        if self.matches == 0 && !self.truncated {
            self.text.push_str("[no line matches]\n");
        }
        if self.truncated {
            let _ = writeln!(
                self.text,
                "[only the first {} matches; narrow the search with path, glob or pattern]",
                self.matches
            );
        }
        if self.skipped > 0 {
            let _ = writeln!(self.text, "[files that could not be searched: {}]", self.skipped);
        }
        if incomplete_directories > 0 {
            let _ =
                writeln!(self.text, "[directories not read completely: {incomplete_directories}]");
        }
        let details = json!({
            "matches": self.matches,
            "files": self.files,
            "skippedFiles": self.skipped,
            "truncated": self.truncated,
        });
        ToolResult::text(self.text).with_details(details)
    }
}

/// Collects the matches of one file. They are used only if the whole file is text.
struct FileSink<'a> {
    matcher: &'a RegexMatcher,
    path: &'a str,
    max_matches: usize,
    max_bytes: usize,
    text: String,
    matches: usize,
    truncated: bool,
    binary: bool,
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let number = found.line_number().unwrap_or_default();
        let text = excerpt(self.matcher, found.bytes());
        let line = format!("{}:{number}: {text}\n", self.path);
        if self.matches == self.max_matches || self.text.len() + line.len() > self.max_bytes {
            self.truncated = true;
            return Ok(false);
        }
        self.text.push_str(&line);
        self.matches += 1;
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Returns the part of a line around its first match.
fn excerpt(matcher: &RegexMatcher, line: &[u8]) -> String {
    let start = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let before = String::from_utf8_lossy(&line[..start]);
    let after = String::from_utf8_lossy(&line[start..]);
    let after = after.trim_end_matches(['\r', '\n']);
    let length = before.chars().count() + after.chars().count();
    if length <= MAX_EXCERPT_CHARS {
        return format!("{before}{after}");
    }
    let skipped = before.chars().count().saturating_sub(CONTEXT_CHARS_BEFORE_MATCH);
    let mut text = String::new();
    if skipped > 0 {
        text.push('…');
    }
    text.extend(before.chars().skip(skipped).chain(after.chars()).take(MAX_EXCERPT_CHARS));
    if length - skipped > MAX_EXCERPT_CHARS {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_truncated_around_match() {
        let matcher = compile("needle", false).unwrap();
        let line = format!("{}needle{}\n", "a".repeat(100_000), "b".repeat(100_000));
        let text = excerpt(&matcher, line.as_bytes());
        assert!(text.contains("needle") && text.starts_with('…') && text.ends_with('…'));
        assert!(text.chars().count() <= MAX_EXCERPT_CHARS + 2);
        assert_eq!(excerpt(&matcher, b"a needle\r\n"), "a needle");
    }

    #[test]
    fn compiled_pattern_size_is_limited() {
        let failure = compile("(((\\w{100}){100}){100})", false).unwrap_err();
        assert!(failure.to_string().contains("not valid"), "{failure}");
    }
}
