//! Rules for the documents.

use super::{assert_no_violations, files, root};

/// Commands that the README must mention.
const FIRST_COMMANDS: [&str; 2] = ["cargo run -- demo", "cargo xtask test"];

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

/// Returns line numbers and targets of links inside the repository.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let inside =
            targets.filter(|target| !target.contains("://") && !target.contains("mailto:"));
        found.extend(inside.map(|target| (index + 1, target)));
    }
    found
}
