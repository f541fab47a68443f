//! libfaketime, with which tests change the clocks of processes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::apt;

/// Variable with the path of the library.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_FAKETIME";
/// The library for programs with several threads, below a folder for libraries.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// Folders for libraries. Debian has a folder for each architecture in the first.
const FOLDERS: [&str; 3] = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// Returns the path of the library. Installs it if it is missing and `may_install` permits it.
pub(crate) fn find_or_install(may_install: bool) -> Result<PathBuf> {
    if let Some(library) = find() {
        return Ok(library);
    }
    if may_install
        && apt::install(&["libfaketime"])?
        && let Some(library) = find()
    {
        return Ok(library);
    }
    bail!("libfaketime is not installed: apt-get install libfaketime")
}

fn find() -> Option<PathBuf> {
    FOLDERS.iter().find_map(|folder| find_in(Path::new(folder)))
}

/// Returns the path of the library in a folder for libraries, or in one of its subfolders.
fn find_in(folder: &Path) -> Option<PathBuf> {
    let subfolders = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut candidates = std::iter::once(folder.to_owned()).chain(subfolders);
    candidates.find_map(|candidate| Some(candidate.join(LIBRARY)).filter(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{LIBRARY, find_in};

    #[test]
    fn library_is_found_beside_other_folders() {
        let folder =
            std::env::temp_dir().join(format!("rockbot-xtask-faketime-{}", std::process::id()));
        let library = folder.join("x86_64-linux-gnu").join(LIBRARY);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::create_dir_all(folder.join("rabbitmq")).unwrap();
        let before = find_in(&folder);
        fs::write(&library, "").unwrap();
        let after = find_in(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((before, after), (None, Some(library)));
    }
}
