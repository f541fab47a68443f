//! The files of `deploy/compose/secrets`.
//!
//! The folder is its owner's alone. What is in it can be read by everybody who gets that far, since
//! processes in containers run as users that this machine does not know.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

use crate::broker_users;

/// Users of the broker, and the service of the file that is each.
const BROKER_USERS: [(&str, &str); 5] = [
    ("agent", "rockbot.agent.assistant"),
    ("tool-handler", "rockbot.tool-handler"),
    ("mcp-bridge", "rockbot.mcp-bridge"),
    ("scripts-manager", "rockbot.scripts-manager"),
    ("cli", "rockbot.cli"),
];
/// Databases, each with a role of its name.
const DATABASES: [&str; 2] = ["calls", "memory"];
/// Passwords that nothing is made of.
const PASSWORDS: [&str; 2] = ["postgres-password", "grafana-password"];
/// What only a person can fill in.
const KEYS: [&str; 2] = ["model-key", "openrouter-key"];

/// Writes what is missing, and what follows from it.
pub(crate) fn write(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    // Also one that was there.
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let passwords = folder.join("broker-passwords");
    broker_users::write_with_passwords(&passwords, folder)?;
    open_to_containers(&folder.join("definitions.json"))?;
    let text = fs::read_to_string(&passwords)?;
    let passwords = read_passwords(&text);
    for (service, user) in BROKER_USERS {
        let password = passwords.get(user).with_context(|| format!("{user} has no password"))?;
        let url = format!("amqp://{user}:{password}@rabbitmq:5672/%2f");
        write_for_containers(&folder.join(format!("{service}-broker-url")), &url)?;
    }
    for database in DATABASES {
        let password = kept(&folder.join(format!("postgres-{database}-password")), make_up)?;
        let url = format!("postgres://{database}:{password}@postgres:5432/{database}");
        write_for_containers(&folder.join(format!("{database}-store-url")), &url)?;
    }
    for name in PASSWORDS {
        kept(&folder.join(name), make_up)?;
    }
    for name in KEYS {
        kept(&folder.join(name), || Ok(String::new()))?;
    }
    Ok(())
}

/// What the file holds; `fresh` is written where there is none.
fn kept(file: &Path, fresh: impl FnOnce() -> Result<String>) -> Result<String> {
    if !file.exists() {
        write_for_containers(file, &fresh()?)?;
    }
    open_to_containers(file)?;
    Ok(fs::read_to_string(file)?.trim_end().to_owned())
}

fn write_for_containers(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    open_to_containers(file)
}

fn open_to_containers(file: &Path) -> Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o644))
        .with_context(|| format!("cannot change who may read {}", file.display()))
}

/// Lines of `USER PASSWORD`.
fn read_passwords(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(' ')).collect()
}

/// 192 random bits that need no escaping in a URL.
fn make_up() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes).context("no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_secret_is_made_up_once_and_a_persons_own_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let first = kept(&file, make_up).unwrap();
        assert_eq!(first.len(), 48);
        assert_eq!(kept(&file, make_up).unwrap(), first);
        assert_ne!(make_up().unwrap(), first);
        fs::write(&file, "mine\n").unwrap();
        assert_eq!(kept(&file, make_up).unwrap(), "mine");
    }

    #[test]
    fn every_secret_that_a_container_mounts_is_written() {
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
        assert_eq!(mounted.len(), written.len(), "something is written that nobody mounts");
    }
}
