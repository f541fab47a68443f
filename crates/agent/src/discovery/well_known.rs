//! The file of well-known agents.

use std::{fs::File, io::Read, path::Path};

use rockbot_contracts::AgentCard;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
/// Maximum number of agents in it.
const MAX_AGENTS: usize = 256;

/// Reads an array of cards.
///
/// # Errors
/// Returns the problem of a file that cannot be read, is too large, or is not such an array.
pub(super) fn load(file: &Path) -> Result<Vec<AgentCard>, String> {
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| error.to_string())?;
    opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    let cards: Vec<AgentCard> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if cards.len() > MAX_AGENTS {
        return Err(format!("more than {MAX_AGENTS} agents"));
    }
    Ok(cards)
}
