//! Lists the files of the web console, so that the program contains them.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("assets");
    let mut files = Vec::new();
    if folder.is_dir() {
        list(&folder, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&folder).map_err(io::Error::other)?;
        let path = name.to_str().map(|name| format!("/{}", name.replace('\\', "/")));
        let path = path.filter(|path| path.bytes().all(is_plain));
        let path = path.ok_or_else(|| {
            let problem = format!("{}: use letters, digits, `-`, `_` and `.`", file.display());
            io::Error::other(problem)
        })?;
        table.push_str(&format!(
            "    Asset {{ path: {path:?}, content: include_bytes!({file:?}) }},\n"
        ));
    }
    table.push(']');
    fs::write(PathBuf::from(variable("OUT_DIR")?).join("assets.rs"), table)?;
    writeln!(io::stdout(), "cargo::rerun-if-changed=assets")
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.')
}
