//! The password file and RabbitMQ's password hashes.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, OpenOptions, Permissions},
    io::{ErrorKind, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use anyhow::{Context, Result, anyhow, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

/// Mode of files that only their owner may read and write.
const PRIVATE: u32 = 0o600;

/// Returns the hash of each user's password. Passwords are generated for users that are not in the file,
/// and added to it.
///
/// # Errors
/// When the file can't be read or written, or others may read it.
pub(crate) fn hashes(
    file: &Path,
    users: impl Iterator<Item = String>,
) -> Result<BTreeMap<String, String>> {
    let mut passwords = read(file)?;
    let known = passwords.len();
    let mut hashes = BTreeMap::new();
    for user in users {
        if !passwords.contains_key(&user) {
            passwords.insert(user.clone(), generate()?);
        }
        hashes.insert(user.clone(), hash(&passwords[&user], random()?));
    }
    if passwords.len() > known {
        let mut text = String::new();
        for (user, password) in &passwords {
            writeln!(text, "{user} {password}")?;
        }
        write_private(file, &text)?;
    }
    Ok(hashes)
}

fn read(file: &Path) -> Result<BTreeMap<String, String>> {
    let shown = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let mode = fs::metadata(file)?.permissions().mode();
    ensure!(mode & 0o077 == 0, "others may read {shown}: run `chmod 600 {shown}`");
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let pairs = lines.map(|(at, line)| {
        let pair = line.split_once(' ').filter(|(_, password)| !password.is_empty());
        let (user, password) =
            pair.with_context(|| format!("{shown}: line {} is not `USER PASSWORD`", at + 1))?;
        Ok((user.to_owned(), password.to_owned()))
    });
    pairs.collect()
}

/// Writes a file that only its owner can ever read.
///
/// # Errors
/// When it can't be written.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<()> {
    let shown = file.display();
    let mut open =
        OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(file)?;
    open.set_permissions(Permissions::from_mode(PRIVATE))?;
    open.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random numbers: {error}"))?;
    Ok(bytes)
}

/// Generates a password of 192 random bits, in characters that need no escaping in a URL.
fn generate() -> Result<String> {
    let bytes: [u8; 24] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Hashes a password with RabbitMQ's `rabbit_password_hashing_sha256`: the salt, followed by the hash of
/// salt and password.
fn hash(password: &str, salt: [u8; 4]) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(password).finalize();
    STANDARD.encode([&salt[..], &digest[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_generated_once_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passwords");
        let users = || ["a.cli", "a.agent.b"].map(str::to_owned).into_iter();
        assert_eq!(hashes(&file, users()).unwrap().len(), 2);
        let first = fs::read_to_string(&file).unwrap();
        assert_eq!(first.lines().count(), 2);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, PRIVATE);
        hashes(&file, users()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), first);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert!(hashes(&file, users()).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn hash_matches_the_example_of_rabbitmqs_documentation() {
        assert_eq!(
            hash("test12", [0x90, 0x8D, 0xC6, 0x0A]),
            "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
        );
    }
}
