//! `OpenAPI` documents below a folder.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rockbot_rest::openapi::{Document, ImportOptions, SchemeCredentials};
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

/// Documents in the order of their paths.
pub(crate) struct Corpus {
    pub(crate) files: Vec<PathBuf>,
}

impl Corpus {
    /// Finds the documents of the arguments `DIR [EVERY]`: each `EVERY`th of a folder.
    pub(crate) fn from_arguments() -> std::io::Result<Self> {
        let mut arguments = std::env::args().skip(1);
        let folder = arguments.next().unwrap_or_else(|| ".".to_owned());
        let every = arguments.next().and_then(|every| every.parse().ok()).unwrap_or(1).max(1);
        let mut files = Vec::new();
        collect(Path::new(&folder), &mut files)?;
        files.sort();
        Ok(Self { files: files.into_iter().step_by(every).collect() })
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            collect(&path, files)?;
        } else if matches!(ending, Some("json" | "yaml" | "yml")) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns options with credentials for all security schemes and servers, so that only the document itself is
/// judged.
pub(crate) fn options(text: &str, document: &Document) -> ImportOptions {
    let secret = || Some(SecretString::from("secret-of-the-survey"));
    let credentials = || SchemeCredentials {
        value: secret(),
        token: secret(),
        user: Some("user".to_owned()),
        password: secret(),
        ..SchemeCredentials::default()
    };
    let schemes = document.security_schemes().into_iter();
    let mut origins = BTreeSet::new();
    if let Ok(document) = serde_json::from_str(text) {
        find_origins(&document, &mut origins);
    }
    // Servers of Swagger documents are converted.
    let servers = document.servers().into_iter().filter_map(origin);
    ImportOptions {
        credential_origins: origins.into_iter().chain(servers).collect(),
        auth: schemes.map(|name| (name.to_owned(), credentials())).collect(),
        document_url: Url::parse("https://api.example.com/openapi.json").ok(),
        deprecated: true,
        allow_plain_http: true,
        ..ImportOptions::default()
    }
}

/// Finds the origins of the servers of a document, its paths and operations, with the defaults of their
/// variables.
fn find_origins(holder: &Value, origins: &mut BTreeSet<String>) {
    for server in holder["servers"].as_array().into_iter().flatten() {
        let mut url = server["url"].as_str().unwrap_or_default().to_owned();
        for (name, variable) in server["variables"].as_object().into_iter().flatten() {
            let default = variable["default"].as_str().unwrap_or_default();
            url = url.replace(&format!("{{{name}}}"), default);
        }
        origins.extend(origin(&url));
    }
    let path_items = holder["paths"].as_object().into_iter().flatten().map(|(_, item)| item);
    for path_item in path_items {
        find_origins(path_item, origins);
        for (_, operation) in path_item.as_object().into_iter().flatten() {
            find_origins(operation, origins);
        }
    }
}

fn origin(url: &str) -> Option<String> {
    Url::parse(url).ok().map(|url| url.origin().ascii_serialization())
}
