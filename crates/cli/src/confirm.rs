//! Confirmation of permanent deletions.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use rockbot_service::exit;

use crate::failure::{Failure, OrExit};

/// Fails unless the deletion is confirmed or a terminal can prompt for it. `otherwise` completes the
/// advice to add `--yes`; it may be empty.
pub(crate) fn require_confirmation(yes: bool, otherwise: &str) -> Result<(), Failure> {
    if yes || std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "deletion needs confirmation, but standard input is no terminal; add --yes to delete{otherwise}"
    )))
}

/// Prompts for confirmation on the terminal.
pub(crate) async fn confirm(prompt: String) -> Result<bool, Failure> {
    let prompting = tokio::task::spawn_blocking(move || {
        let mut stderr = anstream::stderr().lock();
        write!(stderr, "{prompt}")?;
        stderr.flush()?;
        let mut input = String::new();
        std::io::stdin().read_line(&mut input)?;
        std::io::Result::Ok(matches!(input.trim(), "y" | "Y" | "yes"))
    });
    prompting
        .await
        .or_exit(exit::SOFTWARE)?
        .context("cannot prompt for confirmation; add --yes to confirm")
        .or_exit(exit::IO)
}
