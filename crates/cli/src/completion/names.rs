//! The names of the last discovery, kept for completion.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::private_file;

/// Maximum number of kept names of a kind.
const MAX_NAMES: usize = 1_000;
/// Longest kept name, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Largest file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Names that commands discovered. They come from the bus, so only those that a shell takes as one plain
/// word are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Names {
    pub(crate) tools: Vec<String>,
    pub(crate) agents: Vec<String>,
    pub(crate) queues: Vec<String>,
}

impl Names {
    /// Returns the kept names; none if they cannot be read.
    pub(crate) fn read() -> Self {
        file().map(|file| Self::read_from(&file)).unwrap_or_default()
    }

    fn read_from(file: &Path) -> Self {
        let mut text = String::new();
        let read =
            File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
        let names = read.ok().and_then(|_| serde_json::from_str::<Self>(&text).ok());
        let Self { tools, agents, queues } = names.unwrap_or_default();
        Self { tools: plain(tools), agents: plain(agents), queues: plain(queues) }
    }

    /// Keeps these names instead of the earlier ones of the same kinds. A failure is not reported: the
    /// command has done its work.
    pub(crate) fn keep(self) {
        if let Some(file) = file() {
            let _ = self.keep_in(&file);
        }
    }

    fn keep_in(self, file: &Path) -> anyhow::Result<()> {
        let kept = Self::read_from(file);
        let newer = |new: Vec<String>, old: &Vec<String>| {
            let new = plain(new);
            if new.is_empty() { old.clone() } else { new }
        };
        let names = Self {
            tools: newer(self.tools, &kept.tools),
            agents: newer(self.agents, &kept.agents),
            queues: newer(self.queues, &kept.queues),
        };
        if names == kept {
            return Ok(());
        }
        if let Some(folder) = file.parent() {
            private_file::create_folder(folder)?;
        }
        private_file::replace(file, &serde_json::to_string(&names)?)
    }
}

/// Returns the names that can be completed, sorted.
fn plain(names: Vec<String>) -> Vec<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    let fits = |name: &String| {
        !name.is_empty()
            && !name.starts_with('-')
            && name.len() <= MAX_NAME_BYTES
            && name.bytes().all(is_plain)
    };
    let mut names: Vec<_> = names.into_iter().filter(fits).take(MAX_NAMES).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the file in the cache folder of the XDG base directory specification.
fn file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("rockbot/names.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn kinds_are_replaced_one_by_one_and_hostile_names_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rockbot/names.json");
        assert_eq!(Names::read_from(&file), Names::default());
        let tools = owned(&["search", "bash", "$(reboot)", "a b", "-rf", "x\u{1b}[2J", "bash"]);
        Names { tools, ..Names::default() }.keep_in(&file).unwrap();
        let agents = owned(&["assistant"]);
        Names { agents, ..Names::default() }.keep_in(&file).unwrap();
        let read = Names::read_from(&file);
        assert_eq!(read.tools, ["bash", "search"]);
        assert_eq!(read.agents, ["assistant"]);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Names::read_from(&file), Names::default());
    }
}
