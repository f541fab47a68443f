//! The password file and RabbitMQ's password hashes.

use std::{
    collections::BTreeMap, fmt::Write as _, fs, io::ErrorKind, os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Context, Result, anyhow, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use crate::private_file;

/// Returns the password of each user. Passwords are generated for users that are not in the file, and
/// added to it.
///
/// # Errors
/// When the file can't be read or written, or others may read it.
pub(super) fn read_or_generate(
    file: &Path,
    users: impl Iterator<Item = String>,
) -> Result<BTreeMap<String, String>> {
    let mut passwords = read(file)?;
    let known = passwords.len();
    let mut of_users = BTreeMap::new();
    for user in users {
        if !passwords.contains_key(&user) {
            passwords.insert(user.clone(), generate()?);
        }
        of_users.insert(user.clone(), passwords[&user].clone());
    }
    if passwords.len() > known {
        let mut text = String::new();
        for (user, password) in &passwords {
            writeln!(text, "{user} {password}")?;
        }
        private_file::write(file, &text)?;
    }
    Ok(of_users)
}

/// Returns the hash of each user's password.
///
/// # Errors
/// When the system has no random numbers.
pub(super) fn hashes(passwords: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let hash = |(user, password): (&String, &String)| Ok((user.clone(), hash(password, random()?)));
    passwords.iter().map(hash).collect()
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

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random numbers: {error}"))?;
    Ok(bytes)
}

/// Generates a password of 192 random bits, in characters that need no escaping in a URL.
pub(super) fn generate() -> Result<String> {
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
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn password_is_generated_once_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passwords");
        let users = || ["a.cli", "a.agent.b"].map(str::to_owned).into_iter();
        let passwords = read_or_generate(&file, users()).unwrap();
        assert_eq!(hashes(&passwords).unwrap().len(), 2);
        let first = fs::read_to_string(&file).unwrap();
        assert_eq!(first.lines().count(), 2);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, private_file::PRIVATE);
        assert_eq!(read_or_generate(&file, users()).unwrap(), passwords);
        assert_eq!(fs::read_to_string(&file).unwrap(), first);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let error = read_or_generate(&file, users()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"));
    }

    #[test]
    fn hash_matches_the_example_of_rabbitmqs_documentation() {
        assert_eq!(
            hash("test12", [0x90, 0x8D, 0xC6, 0x0A]),
            "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
        );
    }
}
