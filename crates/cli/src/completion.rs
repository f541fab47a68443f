//! Shell completion: the scripts, and names that commands have discovered.

pub(crate) mod names;

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;
use rockbot_service::exit;

use self::names::Names;
use crate::{
    arguments::Arguments, config_folder, contexts::Contexts, failure::Outcome, print::outln,
};

const BASH: &str = r#"
_rockbot_names() {
    local names
    names=$("$1" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n $names ]]; then
        local IFS=$'\n'
        COMPREPLY=($names)
    else
        _rockbot "$@"
    fi
}
complete -F _rockbot_names -o nosort -o bashdefault -o default rockbot
"#;

/// Is placed before the end of the generated script, which calls the function.
const ZSH: &str = r#"
functions -c _rockbot _rockbot_arguments
_rockbot() {
    local -a names
    names=("${(@f)$(rockbot __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $names[1] ]]; then
        compadd -- $names
    else
        _rockbot_arguments "$@"
    fi
}

"#;
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_rockbot\" ]";

const FISH: &str = r"
function __rockbot_names
    set -l typed (commandline -opc) (commandline -ct)
    rockbot __complete -- $typed[2..] 2>/dev/null
end
complete -c rockbot -f -n 'string length -q -- (__rockbot_names)' -a '(__rockbot_names)'
";

/// The description of the hidden command, which is on one line of its own in the scripts of zsh and fish.
const HIDDEN: &str = "Print the names that complete the last word";

/// Global options with a value.
const WITH_VALUE: [&str; 5] = ["--bus", "--config", "--context", "--mcp", "--root"];

/// Prints a completion script.
pub(crate) fn print_script(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "rockbot", &mut script);
    // Some of the generated scripts offer hidden commands.
    let script = String::from_utf8_lossy(&script);
    let mut script =
        script.split_inclusive('\n').filter(|line| !line.contains(HIDDEN)).collect::<String>();
    match shell {
        Shell::Bash => script.push_str(BASH),
        Shell::Fish => script.push_str(FISH),
        Shell::Zsh => script = script.replacen(ZSH_END, &format!("{ZSH}{ZSH_END}"), 1),
        _ => {}
    }
    std::io::stdout().write_all(script.as_bytes())?;
    Ok(exit::OK)
}

/// A kind of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Agent,
    Context,
    Queue,
    Tool,
}

/// Prints the names that complete the last of the words after `rockbot`.
pub(crate) fn print_names(words: &[String]) -> Outcome {
    let Some((typed, before)) = words.split_last() else { return Ok(exit::OK) };
    let Some(kind) = kind(before) else { return Ok(exit::OK) };
    let names = match kind {
        Kind::Context => {
            let contexts = config_folder::of_process().map(|folder| Contexts::read(&folder));
            let contexts = contexts.and_then(Result::ok).unwrap_or_default();
            contexts.contexts.into_keys().collect()
        }
        Kind::Agent => Names::read().agents,
        Kind::Queue => Names::read().queues,
        Kind::Tool => Names::read().tools,
    };
    for name in names.iter().filter(|name| name.starts_with(typed.as_str())) {
        outln!("{name}")?;
    }
    Ok(exit::OK)
}

/// Returns the kind of names that can follow these words.
fn kind(before: &[String]) -> Option<Kind> {
    match before.last().map(String::as_str) {
        Some("--agent") => return Some(Kind::Agent),
        Some("--tool") => return Some(Kind::Tool),
        Some("--context") => return Some(Kind::Context),
        _ => {}
    }
    let mut words = Vec::new();
    let mut is_value = false;
    for word in before {
        if !std::mem::take(&mut is_value) && !word.starts_with('-') {
            words.push(word.as_str());
        }
        is_value = WITH_VALUE.contains(&word.as_str());
    }
    match words.as_slice() {
        ["tools", "call" | "describe"] => Some(Kind::Tool),
        ["dlq", "list", ..] | ["dlq", "show" | "replay" | "purge"] => Some(Kind::Queue),
        ["context", "use" | "remove"] => Some(Kind::Context),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_follows_from_the_words_before() {
        for (before, expected) in [
            ("tools call", Some(Kind::Tool)),
            ("--bus amqp://x tools --json describe", Some(Kind::Tool)),
            ("tools call read_file", None),
            ("chat --agent", Some(Kind::Agent)),
            ("bench --tool", Some(Kind::Tool)),
            ("dlq list tool.invoke", Some(Kind::Queue)),
            ("dlq purge", Some(Kind::Queue)),
            ("context use", Some(Kind::Context)),
            ("--context", Some(Kind::Context)),
            ("", None),
        ] {
            let words: Vec<_> = before.split_whitespace().map(str::to_owned).collect();
            assert_eq!(kind(&words), expected, "{before}");
        }
    }
}
