//! The line editor of an interactive session.

use std::{
    borrow::Cow,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use reedline::{
    Color, ColumnarMenu, Completer, CompletionResult, EditCommand, Emacs, FileBackedHistory,
    KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch,
    PromptHistorySearchStatus, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, Suggestion,
    default_emacs_keybindings,
};

use super::commands;
use crate::{print::note, private_file};

/// Number of messages in the history.
const HISTORY_ENTRIES: usize = 500;
/// Largest history file that is read, in bytes.
const MAX_HISTORY_BYTES: u64 = 8 * 1024 * 1024;
const COMPLETION_MENU: &str = "commands";

/// The name of the selected context in the prompt.
#[derive(Debug, Clone)]
pub(super) struct PromptName {
    pub(super) name: String,
    /// Shows it in red.
    pub(super) is_production: bool,
}

/// Result of editing.
pub(super) enum Edited {
    Line(String),
    /// The editor was paused. It keeps the line.
    Paused,
}

/// A line editor with history and completion.
pub(super) struct Editor {
    reedline: Reedline,
    prompt: ChatPrompt,
}

impl Editor {
    /// Creates an editor that pauses when `pause` is set. Messages are kept in the state folder.
    pub(super) fn new(name: Option<PromptName>, pause: Arc<AtomicBool>) -> Self {
        let mut keys = default_emacs_keybindings();
        let next = ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(COMPLETION_MENU.to_owned()),
            ReedlineEvent::MenuNext,
        ]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, next);
        let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, newline);
        let menu = Box::new(ColumnarMenu::default().with_name(COMPLETION_MENU).with_columns(1));
        let mut reedline = Reedline::create()
            .use_bracketed_paste(true)
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_completer(Box::new(CommandCompleter))
            .with_menu(ReedlineMenu::EngineCompleter(menu))
            .with_quick_completions(true)
            .with_break_signal(pause);
        match open_history() {
            Ok(Some(history)) => reedline = reedline.with_history(Box::new(history)),
            Ok(None) => {}
            Err(problem) => note!("{problem}"),
        }
        Self { reedline, prompt: ChatPrompt { name } }
    }

    /// Reads a line. Returns `None` at the end of the input.
    pub(super) fn read(&mut self) -> Option<Edited> {
        loop {
            match self.reedline.read_line(&self.prompt) {
                Ok(Signal::Success(line)) => {
                    // The thread ends with the process, so the history would not be written later.
                    let _ = self.reedline.sync_history();
                    return Some(Edited::Line(line));
                }
                // Ctrl-C clears the line: no turn runs that could be cancelled.
                Ok(Signal::CtrlC) => {}
                Ok(Signal::ExternalBreak(_)) => return Some(Edited::Paused),
                _ => return None,
            }
        }
    }
}

/// Opens the history, which only its owner can read. Returns `None` without a home folder.
fn open_history() -> Result<Option<FileBackedHistory>, String> {
    let Some(folder) = rockbot_store::state_folder() else { return Ok(None) };
    let file = folder.join("chat-history");
    let failed = |reason: String| {
        format!("{}: {reason}; this session has no history of earlier ones", file.display())
    };
    prepare(&file).map_err(|error| failed(format!("{error:#}")))?;
    let history = FileBackedHistory::with_file(HISTORY_ENTRIES, file.clone());
    history.map(Some).map_err(|error| failed(error.to_string()))
}

fn prepare(file: &Path) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        private_file::create_folder(folder)?;
    }
    private_file::ensure(file)?;
    let bytes = std::fs::metadata(file)?.len();
    anyhow::ensure!(
        bytes <= MAX_HISTORY_BYTES,
        "{bytes} bytes, at most {MAX_HISTORY_BYTES}; delete it"
    );
    Ok(())
}

/// Completes the commands at the beginning of a message.
struct CommandCompleter;

impl Completer for CommandCompleter {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        CompletionResult::fresh(complete(line.get(..pos).unwrap_or_default()))
    }
}

/// Returns the commands that start with the whole line up to the cursor.
fn complete(typed: &str) -> Vec<Suggestion> {
    if !typed.starts_with('/') {
        return Vec::new();
    }
    let matching = commands::TABLE.iter().filter(|entry| entry.name.starts_with(typed));
    let suggestions = matching.map(|entry| Suggestion {
        value: entry.name.to_owned(),
        description: Some(entry.description.to_owned()),
        span: Span::new(0, typed.len()),
        append_whitespace: !entry.argument.is_empty(),
        ..Suggestion::default()
    });
    suggestions.collect()
}

/// The prompt, with the name of the selected context.
struct ChatPrompt {
    name: Option<PromptName>,
}

impl Prompt for ChatPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        match &self.name {
            Some(context) => Cow::Owned(format!("{} you ", context.name)),
            None => Cow::Borrowed("you "),
        }
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("〉")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("::: ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let state = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "no ",
        };
        Cow::Owned(format!("({state}match of {}) ", search.term))
    }

    fn get_prompt_color(&self) -> Color {
        match &self.name {
            Some(PromptName { is_production: true, .. }) => Color::LightRed,
            _ => Color::LightGreen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_at_the_beginning_only() {
        let names = |typed| complete(typed).into_iter().map(|one| one.value).collect::<Vec<_>>();
        assert_eq!(names("/a"), ["/agent"]);
        assert_eq!(names("/").len(), commands::TABLE.len());
        assert!(names("hello /a").is_empty() && names("").is_empty());
    }
}
