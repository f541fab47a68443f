//! The commands of an interactive session: lines that start with a slash.

use crate::render;

/// A command with its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlashCommand {
    Help,
    New,
    /// The agent, or none to show the present one.
    Agent(Option<String>),
    Tools,
    /// Number of calls.
    Last(usize),
    Cost,
    Retry,
    /// The file, or none for one that is named after the conversation.
    Export(Option<String>),
    Image(String),
    /// The whole line is read by the prompts of MCP servers.
    Prompt,
}

/// The entry of a command in the help and the completion.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) argument: &'static str,
    pub(super) description: &'static str,
}

/// All commands.
pub(super) const TABLE: [Entry; 10] = [
    entry("/help", "", "show these commands"),
    entry("/new", "", "start a new conversation"),
    entry("/agent", "[NAME]", "start a new conversation with this agent, or show the present one"),
    entry("/tools", "", "list the tools that the agent may use"),
    entry("/last", "[N]", "show the last call, or the last N, with arguments and results"),
    entry("/cost", "", "show what the last turn and the conversation used"),
    entry("/retry", "", "send the last message again"),
    entry("/export", "[FILE]", "write the conversation as JSON lines to a new file"),
    entry("/image", "FILE", "send an image with the next message"),
    entry("/prompt", "[SERVER PROMPT]", "list the prompts of MCP servers, or send one"),
];

const fn entry(name: &'static str, argument: &'static str, description: &'static str) -> Entry {
    Entry { name, argument, description }
}

/// The help of the keys.
const KEYS: &str = "Keys: Alt-Enter starts a new line, the arrow keys recall earlier messages, Tab completes \
                    commands, Ctrl-C cancels a turn, Ctrl-D exits";

/// Returns the text of `/help`.
pub(super) fn help() -> String {
    let row = |entry: &Entry| {
        vec![format!("{} {}", entry.name, entry.argument), entry.description.to_owned()]
    };
    let table = render::table(&["", ""], TABLE.iter().map(row));
    format!("{table}\n{}", render::dim(KEYS))
}

/// Parses a line. Returns `None` for a message, and the problem with a line that is no valid command.
/// A slash that is followed by another one, or by a path, starts a message.
pub(super) fn parse(line: &str) -> Option<Result<SlashCommand, String>> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
    name.strip_prefix('/').filter(|name| !name.is_empty() && is_name(name))?;
    let optional = (!argument.is_empty()).then(|| argument.to_owned());
    let command = match name {
        "/agent" => SlashCommand::Agent(optional),
        "/export" => SlashCommand::Export(optional),
        "/image" => match optional {
            Some(file) => SlashCommand::Image(file),
            None => return Some(Err("/image needs a file, such as /image photo.png".to_owned())),
        },
        "/last" => match argument.parse() {
            _ if argument.is_empty() => SlashCommand::Last(1),
            Ok(number) if number > 0 => SlashCommand::Last(number),
            _ => return Some(Err("/last needs a number of calls, such as /last 3".to_owned())),
        },
        "/help" | "/new" | "/tools" | "/cost" | "/retry" if optional.is_some() => {
            return Some(Err(format!("{name} has no argument; /help lists the commands")));
        }
        "/prompt" => SlashCommand::Prompt,
        "/help" => SlashCommand::Help,
        "/new" => SlashCommand::New,
        "/tools" => SlashCommand::Tools,
        "/cost" => SlashCommand::Cost,
        "/retry" => SlashCommand::Retry,
        other => return Some(Err(unknown(other))),
    };
    Some(Ok(command))
}

fn unknown(name: &str) -> String {
    let names = TABLE.iter().map(|entry| entry.name);
    let similar = crate::similar_names::closest(name, names);
    let advice = similar.map(|name| format!("did you mean {name}? ")).unwrap_or_default();
    format!("unknown command {name}; {advice}/help lists the commands")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_command_is_parsed() {
        for Entry { name, argument, .. } in &TABLE {
            let line = if argument.starts_with('[') || argument.is_empty() {
                (*name).to_owned()
            } else {
                format!("{name} x")
            };
            assert!(matches!(parse(&line), Some(Ok(_))), "{line}");
            assert!(help().contains(name), "{name}");
        }
    }

    #[test]
    fn arguments_are_checked() {
        let parsed = |line| parse(line).unwrap();
        assert_eq!(parsed("/last 3"), Ok(SlashCommand::Last(3)));
        assert_eq!(parsed("/agent  writer "), Ok(SlashCommand::Agent(Some("writer".to_owned()))));
        assert_eq!(parsed("/image a b.png"), Ok(SlashCommand::Image("a b.png".to_owned())));
        for line in ["/last x", "/last 0", "/new x", "/image", "/hlep"] {
            assert!(parsed(line).is_err(), "{line}");
        }
        assert!(parsed("/hlep").unwrap_err().contains("did you mean /help?"));
    }

    #[test]
    fn paths_and_messages_are_no_commands() {
        for line in ["/etc/hosts is long", "// comment", "/", "hello", "/Users/me"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
