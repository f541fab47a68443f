//! Files and shell: six tools that work below one directory of the handler.
//!
//! # Confinement
//! `read_file`, `write_file`, `edit_file`, `list_files` and `search` reach nothing outside the
//! root. Every path is opened relative to an open descriptor of the root, component by component, so
//! absolute paths, `..` and symbolic links (even ones that are swapped while a tool runs) cannot
//! escape it. A hard link or a mount inside the root is part of the root.
//!
//! `bash` is **not** a sandbox. It starts in the root with a nearly empty environment, but its
//! command runs as the user that runs the handler and can read, write and connect to all that this
//! user can. Run the handler in a container that holds nothing else, or set `allow_bash = false`.

mod atomic;
mod bash;
mod capture;
mod config;
mod definition;
mod edit;
mod file_tool;
mod ignored;
mod list;
mod path;
mod provider;
mod read;
mod root;
mod search;
mod stop;
mod walk;
mod write;

use std::sync::Arc;

use rockbot_tools::Tool;

use self::{
    bash::Bash, edit::edit_file, list::list_files, read::read_file, root::Root,
    search::search_files, write::write_file,
};
pub use self::{
    config::{FilesConfig, FilesError},
    provider::{FilesProvider, GUIDE},
};

/// Returns the tools of the family: `read_file`, `write_file`, `edit_file`, `list_files`, `search`, and
/// `bash` if the configuration allows it.
///
/// # Errors
/// The root is missing or not a directory, a limit is out of its range, or the shell is missing.
pub fn tools(config: &FilesConfig) -> Result<Vec<Arc<dyn Tool>>, FilesError> {
    config.check()?;
    let root = Arc::new(Root::open(&config.root)?);
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(read_file(Arc::clone(&root), config)),
        Arc::new(write_file(Arc::clone(&root), config)),
        Arc::new(edit_file(Arc::clone(&root), config)),
        Arc::new(list_files(Arc::clone(&root), config)),
        Arc::new(search_files(Arc::clone(&root), config)),
    ];
    if config.allow_bash {
        tools.push(Arc::new(Bash::new(root, config)));
    }
    Ok(tools)
}
