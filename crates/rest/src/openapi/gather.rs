//! Operations of a document, their ids and the names of their tools.

use std::collections::{BTreeMap, BTreeSet};

use rockbot_contracts::outside_text;
use rockbot_tools::names;
use serde_json::Value;

use super::{
    document::{Document, Version},
    keywords::excerpt,
    options::ImportOptions,
    references::Resolver,
};

/// Maximum number of operations of a document that are looked at.
pub const MAX_OPERATIONS: usize = 20_000;
/// Beginning of the names of all tools.
pub(crate) const NAME_PREFIX: &str = "rest__";
/// Maximum length of an id in a document, in bytes. Longer ones are replaced by method and path.
const MAX_ID_BYTES: usize = 256;
/// Maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 300;

/// Methods that a path can hold, and those of version 3.2.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
const METHODS_OF_3_2: [&str; 1] = ["query"];

/// A selected operation that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedOperation {
    /// Id, or method and path. Shortened.
    pub id: String,
    /// Reason, and what to do where that is known.
    pub reason: String,
}

impl SkippedOperation {
    pub(super) fn new(id: &str, reason: &str) -> Self {
        Self {
            id: outside_text::plain(excerpt(id), MAX_ID_BYTES),
            reason: outside_text::plain(reason, MAX_REASON_CHARS),
        }
    }
}

/// An operation of the document.
pub(super) struct Found<'a> {
    pub(super) id: String,
    /// Method in upper case.
    pub(super) method: String,
    pub(super) path: &'a str,
    pub(super) path_item: &'a Value,
    pub(super) operation: &'a Value,
}

/// Returns the operations of a document, sorted by path and method, each with a unique id.
pub(super) fn gather<'a>(
    document: &'a Document,
    resolver: &Resolver<'a>,
    unreadable: &mut Vec<SkippedOperation>,
) -> Vec<Found<'a>> {
    let mut found: Vec<Found<'a>> = Vec::new();
    let paths = document.root()["paths"].as_object().into_iter().flatten();
    for (path, path_item) in paths.filter(|(path, _)| !path.starts_with("x-")) {
        if found.len() >= MAX_OPERATIONS || unreadable.len() >= MAX_OPERATIONS {
            let reason = format!(
                "the document has more than {MAX_OPERATIONS} operations; remove paths from it"
            );
            unreadable.push(SkippedOperation::new(path, &reason));
            break;
        }
        match resolver.follow(path_item) {
            Ok(path_item) => gather_path(document.version(), path, path_item, &mut found),
            Err(error) => unreadable.push(SkippedOperation::new(path, &format!("it {error}"))),
        }
    }
    found.truncate(MAX_OPERATIONS);
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for one in &found {
        *count.entry(one.id.clone()).or_default() += 1;
    }
    for one in found.iter_mut().filter(|one| count[&one.id] > 1) {
        one.id = format!("{} {}", one.method, one.path);
    }
    found
}

fn gather_path<'a>(
    version: Version,
    path: &'a str,
    path_item: &'a Value,
    found: &mut Vec<Found<'a>>,
) {
    let more = if version >= Version::V32 { &METHODS_OF_3_2[..] } else { &[] };
    let known = METHODS.iter().chain(more).filter_map(|method| {
        let operation = path_item.get(*method).filter(|operation| operation.is_object())?;
        Some((method.to_ascii_uppercase(), operation))
    });
    let additional = path_item.get("additionalOperations").and_then(Value::as_object);
    let additional = additional.filter(|_| version >= Version::V32).into_iter().flatten();
    let additional = additional.filter(|(_, operation)| operation.is_object());
    let additional = additional.map(|(method, operation)| (method.clone(), operation));
    for (method, operation) in known.chain(additional).take(MAX_OPERATIONS) {
        let id = operation["operationId"].as_str().map(str::trim);
        let id = id.filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
        let id = id.map_or_else(|| made_id(&method, path), ToOwned::to_owned);
        found.push(Found { id, method, path, path_item, operation });
    }
}

/// Returns an id for an operation that has none: `get_users_id` for `GET /users/{id}`.
fn made_id(method: &str, path: &str) -> String {
    let parts = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let mut id = method.to_ascii_lowercase();
    for part in parts {
        id.push('_');
        id.push_str(part);
    }
    id
}

/// Returns the name of the tool of each operation.
pub(super) fn assign_names(found: &[Found<'_>], options: &ImportOptions) -> Vec<String> {
    let prefix = options.tool_name_prefix.as_deref().unwrap_or_default();
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}_") };
    let mut taken = BTreeSet::new();
    let mut wanted = Vec::with_capacity(found.len());
    for one in found {
        let own = options.overrides.get(&one.id).and_then(|change| change.name.as_deref());
        let mut name = format!("{NAME_PREFIX}{prefix}{}", own.unwrap_or(&one.id));
        if !taken.insert(name.clone()) {
            name = format!("{name} {} {}", one.method, one.path);
        }
        wanted.push(name);
    }
    let assigned = names::assign(wanted.iter().cloned(), names::DEFAULT_NAME_BYTES);
    wanted.into_iter().map(|name| assigned.get(&name).cloned().unwrap_or(name)).collect()
}
