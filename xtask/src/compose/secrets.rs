//! The files of `deploy/compose/secrets`.
//!
//! Only its owner can enter the folder. The files are world-readable, because processes in containers
//! run as users unknown to the host.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

use crate::broker_users;

/// Services and their broker users.
const BROKER_USERS: [(&str, &str); 5] = [
    ("agent", "rockbot.agent.assistant"),
    ("tool-handler", "rockbot.tool-handler"),
    ("mcp-bridge", "rockbot.mcp-bridge"),
    ("scripts-manager", "rockbot.scripts-manager"),
    ("cli", "rockbot.cli"),
];
/// Databases, each with a role of the same name.
const DATABASES: [&str; 2] = ["calls", "memory"];
/// Passwords that are not part of a URL.
const PASSWORDS: [&str; 2] = ["postgres-password", "grafana-password"];
/// Keys that the user fills in.
const KEYS: [&str; 2] = ["model-key", "openrouter-key"];

/// Writes missing secrets and the files derived from them.
pub(crate) fn write(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    // Also for an existing folder.
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let passwords = folder.join("broker-passwords");
    broker_users::write_with_passwords(&passwords, folder)?;
    allow_containers_to_read(&folder.join("definitions.json"))?;
    let text = fs::read_to_string(&passwords)?;
    let passwords = read_passwords(&text);
    for (service, user) in BROKER_USERS {
        let password = passwords.get(user).with_context(|| format!("{user} has no password"))?;
        let url = format!("amqp://{user}:{password}@rabbitmq:5672/%2f");
        write_for_containers(&folder.join(format!("{service}-broker-url")), &url)?;
    }
    for database in DATABASES {
        let password =
            read_or_create(&folder.join(format!("postgres-{database}-password")), random_password)?;
        let url = format!("postgres://{database}:{password}@postgres:5432/{database}");
        write_for_containers(&folder.join(format!("{database}-store-url")), &url)?;
    }
    for name in PASSWORDS {
        read_or_create(&folder.join(name), random_password)?;
    }
    for name in KEYS {
        read_or_create(&folder.join(name), || Ok(String::new()))?;
    }
    Ok(())
}

/// Returns the content of a file, which is created with `initial` if it is missing.
fn read_or_create(file: &Path, initial: impl FnOnce() -> Result<String>) -> Result<String> {
    if !file.exists() {
        write_for_containers(file, &initial()?)?;
    }
    allow_containers_to_read(file)?;
    Ok(fs::read_to_string(file)?.trim_end().to_owned())
}

fn write_for_containers(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    allow_containers_to_read(file)
}

fn allow_containers_to_read(file: &Path) -> Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o644))
        .with_context(|| format!("cannot set the permissions of {}", file.display()))
}

/// Parses lines of `USER PASSWORD`.
fn read_passwords(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(' ')).collect()
}

/// Returns 192 random bits in hexadecimal, which need no escaping in URLs.
fn random_password() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn existing_secret_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let first = read_or_create(&file, random_password).unwrap();
        assert_eq!(first.len(), 48);
        assert_eq!(read_or_create(&file, random_password).unwrap(), first);
        assert_ne!(random_password().unwrap(), first);
        fs::write(&file, "mine\n").unwrap();
        assert_eq!(read_or_create(&file, random_password).unwrap(), "mine");
    }

    #[test]
    fn mounted_secrets_are_written() {
        let compose = workspace::root().join("deploy/compose/compose.yaml");
        let text = fs::read_to_string(compose).unwrap();
        let mounted = text.split("${SECRETS:-./secrets}/").skip(1);
        let mounted: Vec<_> = mounted.map(|rest| rest.split('"').next().unwrap()).collect();
        let mut written: Vec<_> = ["definitions.json".to_owned()].into();
        written.extend(BROKER_USERS.map(|(service, _)| format!("{service}-broker-url")));
        written.extend(DATABASES.map(|database| format!("{database}-store-url")));
        written.extend(DATABASES.map(|database| format!("postgres-{database}-password")));
        written.extend(PASSWORDS.iter().chain(&KEYS).map(|name| (*name).to_owned()));
        for name in &mounted {
            assert!(written.iter().any(|written| written == name), "{name} is not written");
        }
        assert_eq!(mounted.len(), written.len(), "a secret is written that no service mounts");
    }
}
