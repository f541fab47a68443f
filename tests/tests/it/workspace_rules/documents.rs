//! Rules for the documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use rockbot_testkit::documented_output::code_blocks;

use super::{assert_no_violations, files, root};

/// Commands that the README must mention.
const FIRST_COMMANDS: [&str; 2] = ["cargo run -- demo", "cargo xtask test"];

/// Programs of command lines.
const PROGRAMS: [&str; 8] =
    ["cargo", "docker", "echo", "export", "openssl", "rockbot", "rockbot-tool-handler", "time"];
/// Code blocks without commands and output, by their documents and beginnings.
const OTHER_BLOCKS: [(&str, &str); 6] = [
    ("docs/ARCHITECTURE.md", "7   cli"),
    ("docs/mcp.md", "agent ──"),
    ("docs/observability.md", "process user.message"),
    ("docs/operations.md", "max_message_size"),
    ("docs/security.md", "[bus]"),
    ("docs/tools.md", "hooks →"),
];

#[test]
fn output_samples_are_compared_with_output() {
    let sources: Vec<_> =
        files("rs").into_iter().filter(|(path, _)| path.contains("/tests/")).collect();
    let compared: Vec<_> = sources.iter().flat_map(|(_, text)| compared_samples(text)).collect();
    let mut violations = Vec::new();
    for (path, text) in files("md") {
        let is_document = path.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
        if path != "README.md" && !is_document {
            continue;
        }
        let known = compared.iter().copied().chain(OTHER_BLOCKS);
        let known: Vec<_> = known.filter(|(document, _)| *document == path).collect();
        let samples = code_blocks(&text).into_iter().filter(|block| block.language.is_empty());
        for block in samples.filter(|block| !is_command(&block.text)) {
            if !known.iter().any(|(_, start)| block.text.starts_with(start)) {
                let first = block.text.lines().next().unwrap_or_default();
                violations.push(format!(
                    "{path}: compare the sample that starts with {first:?} with the program's output, see \
                     `documented_output::sample`, or add it to OTHER_BLOCKS"
                ));
            }
        }
    }
    assert_no_violations(&violations);
}

/// Returns whether the first line of a block is a command, or sets a variable.
fn is_command(block: &str) -> bool {
    let first = block.split_whitespace().next().unwrap_or_default();
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    PROGRAMS.contains(&first) || first.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// Returns the documents and beginnings of the samples that a test compares with output.
fn compared_samples(source: &str) -> Vec<(&str, &str)> {
    let calls = source.split("sample(\"").skip(1);
    let found = calls.filter_map(|call| {
        let (document, rest) = call.split_once('"')?;
        let rest = rest.strip_prefix(',')?.trim_start();
        let (start, _) = match rest.strip_prefix("r#\"") {
            Some(raw) => raw.split_once("\"#")?,
            None => rest.strip_prefix('"')?.split_once('"')?,
        };
        Some((document, start))
    });
    found.collect()
}

#[test]
fn compared_samples_are_found() {
    let source = "a(&sample(\"b.md\", \"c \"), sample(\"d.md\",\n r#\"{\"e\"\"#))";
    assert_eq!(compared_samples(source), [("b.md", "c "), ("d.md", "{\"e\"")]);
}

#[test]
fn document_links_resolve() {
    let mut violations = Vec::new();
    for (path, text) in files("md") {
        let folder = root().join(&path).parent().expect("a file is in a folder").to_path_buf();
        for (number, target) in links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !folder.join(file).exists() {
                violations
                    .push(format!("{path}:{number}: {target} does not exist; correct the link"));
            }
        }
    }
    assert_no_violations(&violations);
}

#[test]
fn document_anchors_exist() {
    let files: BTreeMap<String, String> = files("md").into_iter().collect();
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        files.iter().map(|(path, text)| (path.as_str(), anchors(text))).collect();
    let mut violations = Vec::new();
    for (path, text) in &files {
        for (number, target) in links(text) {
            let Some((file, anchor)) = target.split_once('#') else { continue };
            let linked = if file.is_empty() { path.clone() } else { resolve(path, file) };
            if anchors.get(linked.as_str()).is_some_and(|anchors| !anchors.contains(anchor)) {
                violations.push(format!(
                    "{path}:{number}: {linked} has no heading for #{anchor}; correct the link"
                ));
            }
        }
    }
    assert_no_violations(&violations);
}

#[test]
fn readme_names_first_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("write a README.md");
    let missing = FIRST_COMMANDS.iter().filter(|command| !readme.contains(**command));
    assert_no_violations(
        &missing.map(|command| format!("README.md: mention `{command}`")).collect::<Vec<_>>(),
    );
}

#[test]
fn link_parser_skips_code_and_external_links() {
    let text =
        "[a](b.md#c) ![d](e.png)\n```\n[no](code.md)\n```\n[web](https://example.org) [f](#g)";
    assert_eq!(links(text), vec![(1, "b.md#c"), (1, "e.png"), (5, "#g")]);
}

#[test]
fn anchors_follow_headings() {
    let text = "# A `b_c`: d, é\n```\n# code\n```\n## [E](f.md)\n### E\n#no\n";
    let expected = ["a-b_c-d-é", "e", "e-1"].map(ToOwned::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    assert_eq!(resolve("docs/adr/1.md", "../a.md"), "docs/a.md");
}

/// Returns the path of a link relative to the root. `from` is the path of the linking document.
fn resolve(from: &str, link: &str) -> String {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let mut parts: Vec<String> = Vec::new();
    for component in folder.join(link).components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Returns the anchors that GitHub gives to the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        let is_heading = heading.len() < line.len() && heading.starts_with(' ');
        is_heading.then(|| heading.trim())
    });
    let anchor = |heading: &str| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let shown = without_targets(heading).to_lowercase();
        shown.chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings
        .map(|heading| {
            let anchor = anchor(heading);
            let earlier = seen.entry(anchor.clone()).or_default();
            *earlier += 1;
            match *earlier {
                1 => anchor,
                number => format!("{anchor}-{}", number - 1),
            }
        })
        .collect()
}

/// Returns a heading with the texts of its links only.
fn without_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
    rest.fold(first, |shown, rest| shown + rest)
}

/// Returns the numbered lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Returns line numbers and targets of links inside the repository.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let inside =
            targets.filter(|target| !target.contains("://") && !target.contains("mailto:"));
        found.extend(inside.map(|target| (index + 1, target)));
    }
    found
}
