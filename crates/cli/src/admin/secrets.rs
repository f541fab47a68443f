//! Secrets of a fleet: passwords, the definitions with their hashes, and the URLs with the passwords.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rockbot_contracts::{AgentName, PoolName, definitions::Fleet};

use super::{
    broker_users::{DEFINITIONS, definitions},
    passwords,
};
use crate::private_file;

/// Services of Compose and the ends of their broker users' names.
const SERVICES: [(&str, &str); 9] = [
    ("agent", ".agent.assistant"),
    ("researcher", ".agent.researcher"),
    ("tool-handler", ".tool-handler"),
    ("mcp-bridge", ".mcp-bridge"),
    ("scripts-manager", ".scripts-manager"),
    ("cli", ".cli"),
    ("operator", ".operator"),
    ("monitor", ".monitor"),
    ("gateway", ".gateway"),
];
/// Agent of the service `researcher` of Compose.
const SECOND_AGENT: &str = "researcher";
/// Pool of the service `web-handler` of Compose.
const WEB_POOL: &str = "web";
/// Databases of Compose, each with a role of the same name.
const DATABASES: [&str; 2] = ["calls", "memory"];
/// Passwords of Compose that are not part of a URL.
const PASSWORDS: [&str; 2] = ["postgres-password", "grafana-password"];
/// Keys of Compose that the user fills in.
const KEYS: [&str; 5] = ["model-key", "brave-key", "tavily-key", "github-token", "openrouter-key"];

/// A URL to which user and password are added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlWithoutUser {
    scheme: String,
    /// Host, port and path.
    rest: String,
}

impl UrlWithoutUser {
    /// Parses a URL with one of the schemes.
    pub(super) fn parse(url: &str, schemes: &[&str]) -> Result<Self> {
        let parts = url.split_once("://").filter(|(scheme, rest)| {
            let host = rest.split('/').next().unwrap_or_default();
            schemes.contains(scheme) && !host.is_empty() && !host.contains('@')
        });
        let Some((scheme, rest)) = parts else {
            let schemes = schemes.join(":// or ");
            bail!("{url:?} is not a URL with {schemes}://, a host and no user");
        };
        Ok(Self { scheme: scheme.to_owned(), rest: rest.to_owned() })
    }

    fn with_user(&self, user: &str, password: &str) -> String {
        format!("{}://{user}:{password}@{}", self.scheme, self.rest)
    }
}

/// Writes the secrets of the chart: `passwords`, and for each Kubernetes secret a folder with a file for
/// each key. Existing passwords are kept.
pub(super) fn write_for_kubernetes(
    fleet: &Fleet,
    folder: &Path,
    broker: &UrlWithoutUser,
    database: &UrlWithoutUser,
) -> Result<Vec<PathBuf>> {
    let (broker_folder, store_folder) = (folder.join("broker"), folder.join("store"));
    for folder in [folder, broker_folder.as_path(), store_folder.as_path()] {
        private_file::create_folder(folder)?;
    }
    let passwords = passwords::read_or_generate(&folder.join("passwords"), fleet.users())?;
    let text = definitions(fleet, &passwords::hashes(&passwords)?);
    private_file::write(&broker_folder.join(DEFINITIONS), &text)?;
    for (user, password) in &passwords {
        private_file::write(&broker_folder.join(user), &broker.with_user(user, password))?;
    }
    let password_file = store_folder.join("password");
    if !password_file.exists() {
        private_file::write(&password_file, &passwords::generate()?)?;
    }
    let password = read(&password_file)?;
    private_file::write(&store_folder.join("url"), &database.with_user("rockbot", &password))?;
    Ok(vec![folder.join("passwords"), broker_folder, store_folder])
}

/// Writes the secrets of Compose. Existing passwords are kept. The service of a handler pool is named
/// `<pool>-handler`; the pool `web` and the agent `researcher` are always part of the fleet.
///
/// Only its owner can enter the folder. The files are world-readable, because processes in containers
/// run as users unknown to the host.
pub(super) fn write_for_compose(fleet: &Fleet, folder: &Path) -> Result<Vec<PathBuf>> {
    private_file::create_folder(folder)?;
    let fleet = &with_compose_services(fleet)?;
    let passwords = passwords::read_or_generate(&folder.join("broker-passwords"), fleet.users())?;
    let text = definitions(fleet, &passwords::hashes(&passwords)?);
    write_for_containers(&folder.join(DEFINITIONS), &text)?;
    let pools =
        fleet.pools().map(|pool| (format!("{pool}-handler"), format!(".tool-handler.{pool}")));
    let services = SERVICES.map(|(service, user)| (service.to_owned(), user.to_owned()));
    for (service, user) in services.into_iter().chain(pools) {
        let (user, password) = user_ending(&passwords, &user)?;
        let url = format!("amqp://{user}:{password}@rabbitmq:5672/%2f");
        write_for_containers(&folder.join(format!("{service}-broker-url")), &url)?;
    }
    for database in DATABASES {
        let file = folder.join(format!("postgres-{database}-password"));
        let password = read_or_create(&file, passwords::generate)?;
        let url = format!("postgres://{database}:{password}@postgres:5432/{database}");
        write_for_containers(&folder.join(format!("{database}-store-url")), &url)?;
    }
    for name in PASSWORDS {
        read_or_create(&folder.join(name), passwords::generate)?;
    }
    for name in KEYS {
        read_or_create(&folder.join(name), || Ok(String::new()))?;
    }
    Ok(vec![folder.to_owned()])
}

fn with_compose_services(fleet: &Fleet) -> Result<Fleet> {
    let fleet = fleet.clone().with_agent(AgentName::new(SECOND_AGENT)?);
    let web = PoolName::new(WEB_POOL)?;
    let is_missing = fleet.pools().all(|pool| *pool != web);
    Ok(fleet.with_pools(is_missing.then_some(web)))
}

fn user_ending<'a>(
    passwords: &'a BTreeMap<String, String>,
    end: &str,
) -> Result<(&'a String, &'a String)> {
    let found = passwords.iter().find(|(user, _)| user.ends_with(end));
    found.with_context(|| {
        format!("the fleet has no user {end:?}: Compose needs the agent assistant")
    })
}

fn read(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim_end().to_owned())
}

/// Returns the content of a file, which is created with `initial` if it is missing.
fn read_or_create(file: &Path, initial: impl FnOnce() -> Result<String>) -> Result<String> {
    if !file.exists() {
        write_for_containers(file, &initial()?)?;
    }
    allow_containers_to_read(file)?;
    read(file)
}

fn write_for_containers(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    allow_containers_to_read(file)
}

fn allow_containers_to_read(file: &Path) -> Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o644))
        .with_context(|| format!("cannot set the permissions of {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> Fleet {
        Fleet::new("rockbot", "/", [AgentName::new("assistant").unwrap()]).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn url_requires_scheme_and_host_without_user() {
        let parse = |url| UrlWithoutUser::parse(url, &["amqp", "amqps"]);
        let url = parse("amqps://broker:5671/%2f").unwrap();
        assert_eq!(
            url.with_user("rockbot.cli", "secret"),
            "amqps://rockbot.cli:secret@broker:5671/%2f"
        );
        for url in ["broker", "http://broker", "amqp:///x", "amqp://guest@broker/%2f"] {
            parse(url).unwrap_err();
        }
    }

    #[test]
    fn kubernetes_secrets_are_private_and_keep_passwords() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("secrets");
        let broker = UrlWithoutUser::parse("amqps://broker/%2f", &["amqps"]).unwrap();
        let database = UrlWithoutUser::parse("postgres://db/rockbot", &["postgres"]).unwrap();
        let write = || write_for_kubernetes(&fleet(), &folder, &broker, &database).unwrap();
        write();
        let users = ["agent.assistant", "cli", "gateway", "mcp-bridge", "monitor", "operator"];
        let users = users.iter().chain(&["scripts-manager", "tool-handler"]);
        let users = users.map(|user| format!("rockbot.{user}"));
        let expected: Vec<_> = std::iter::once(DEFINITIONS.to_owned()).chain(users).collect();
        assert_eq!(names(&folder.join("broker")), expected);
        let files = ["broker/rockbot.cli", "broker/definitions.json", "store/url", "passwords"];
        for file in files {
            let mode = fs::metadata(folder.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, private_file::PRIVATE, "{file}");
        }
        let urls =
            || ["broker/rockbot.cli", "store/url"].map(|file| read(&folder.join(file)).unwrap());
        let first = urls();
        assert!(first[0].starts_with("amqps://rockbot.cli:"), "{first:?}");
        assert!(first[1].starts_with("postgres://rockbot:"), "{first:?}");
        write();
        assert_eq!(urls(), first);
    }

    #[test]
    fn compose_secrets_are_those_that_services_mount() {
        let folder = tempfile::tempdir().unwrap();
        write_for_compose(&fleet(), folder.path()).unwrap();
        let compose =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compose/compose.yaml");
        let text = fs::read_to_string(compose).unwrap();
        let mounted = text.split("${SECRETS:-./secrets}/").skip(1);
        let mut mounted: Vec<_> =
            mounted.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
        mounted.push("broker-passwords".to_owned());
        mounted.sort();
        assert_eq!(names(folder.path()), mounted);
        let url = read(&folder.path().join("agent-broker-url")).unwrap();
        assert!(url.starts_with("amqp://rockbot.agent.assistant:"), "{url}");
        let web = read(&folder.path().join("web-handler-broker-url")).unwrap();
        assert!(web.starts_with("amqp://rockbot.tool-handler.web:"), "{web}");
        let password = folder.path().join("grafana-password");
        fs::write(&password, "mine\n").unwrap();
        write_for_compose(&fleet(), folder.path()).unwrap();
        assert_eq!(read(&password).unwrap(), "mine");
        assert_eq!(read(&folder.path().join("agent-broker-url")).unwrap(), url);
    }
}
