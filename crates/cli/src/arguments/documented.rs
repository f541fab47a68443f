//! Command lines in the documents and in the help texts.

use std::path::Path;

use clap::{CommandFactory, Parser, error::ErrorKind};
use rockbot_testkit::documented_commands::{DocumentedCommand, in_documents, in_lines};

use super::Arguments;

/// The ways in which documents run the program.
const PROGRAMS: [&str; 8] = [
    "rockbot",
    "cargo run --",
    "cargo run --features pdf --",
    "docker compose run --rm cli",
    "docker compose run --rm -T cli",
    "docker compose run --rm operator",
    "docker compose run --rm monitor",
    "docker compose run --rm approver",
];

/// Returns the examples in the help texts of a command and of its subcommands.
fn in_help(command: &clap::Command) -> Vec<DocumentedCommand> {
    let place = format!("help of {}", command.get_name());
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut found = in_lines(&place, &text, &PROGRAMS);
    found.extend(command.get_subcommands().flat_map(in_help));
    found
}

/// Returns whether a command line is only incomplete, or has placeholders as values.
fn is_incomplete(error: &clap::Error) -> bool {
    let lacks_value = error.to_string().contains("a value is required");
    lacks_value
        || matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                | ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::ValueValidation
        )
}

/// Returns why a command line cannot be parsed; `None` if it can, or is only incomplete.
pub(crate) fn violation(command: &DocumentedCommand) -> Option<String> {
    let DocumentedCommand { place, words } = command;
    let line = std::iter::once("rockbot").chain(words.iter().map(String::as_str));
    let error = Arguments::try_parse_from(line).err().filter(|error| !is_incomplete(error))?;
    let error = error.to_string();
    let first = error.lines().next().unwrap_or_default();
    Some(format!("{place}: rockbot {}: {first}", words.join(" ")))
}

#[test]
fn documented_commands_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut commands = in_documents(&root, &PROGRAMS);
    commands.extend(in_help(&Arguments::command()));
    assert!(commands.len() > 200, "{} commands", commands.len());
    let mut violations = Vec::new();
    for command in commands {
        violations.extend(violation(&command));
    }
    assert!(violations.is_empty(), "correct these:\n  {}\n", violations.join("\n  "));
}
