//! Import of the operations of a document.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderName, HeaderValue, Method};
use rockbot_contracts::{ToolHints, outside_text};
use rockbot_tools::names;
use serde_json::Value;

use super::{
    arguments,
    assemble::{Assembled, assemble},
    body::{Body, body},
    body_content::MediaKind,
    document::{Document, Version},
    keywords::excerpt,
    operation::{Argument, Definition, Operation, Plan},
    options::{ImportOptions, OperationOverride},
    parameters::{self, Location, Parameter, ParameterForm},
    path::PathTemplate,
    references::Resolver,
    schema::Schemas,
    security::{Security, security},
    select::{Candidate, IdPatterns, Selection},
    servers,
    style::{Serialization, Style},
};

/// Maximum number of operations of a document that are looked at.
pub const MAX_OPERATIONS: usize = 20_000;
/// Maximum number of notes.
const MAX_NOTES: usize = 100;
/// Maximum length of an id in a document, in bytes. Longer ones are replaced by method and path.
const MAX_ID_BYTES: usize = 256;
/// Maximum lengths of texts, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_024;
const MAX_LABEL_CHARS: usize = 80;
const MAX_REASON_CHARS: usize = 300;

/// Methods that a path can hold, and those of version 3.2.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
const METHODS_OF_3_2: [&str; 1] = ["query"];

/// Headers that the client sets itself.
const OWN_HEADERS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Result of an import.
#[derive(Debug, Clone, Default)]
pub struct Imported {
    /// Operations that can be called, in the order of their paths.
    pub operations: Vec<Operation>,
    /// Selected operations that cannot be called.
    pub skipped: Vec<SkippedOperation>,
    /// Number of operations that the filters left out.
    pub excluded: usize,
    /// Settings without effect: names and patterns that nothing in the document has.
    pub notes: Vec<String>,
}

/// A selected operation that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedOperation {
    /// Id, or method and path. Shortened.
    pub id: String,
    /// Reason, and what to do where that is known.
    pub reason: String,
}

/// Imports the selected operations of a document.
///
/// The result depends on the document and the options only, and the name of a tool does not depend on
/// the filters. Takes time on large documents, about a minute at most: call this on a blocking thread.
#[must_use]
pub fn import(document: &Document, options: &ImportOptions) -> Imported {
    let root = document.root();
    let resolver = Resolver::new(root);
    let has_siblings = document.version() >= Version::V31;
    let mut imported = Imported::default();
    let found = gather(document, &resolver, &mut imported.skipped);
    let names = assign_names(&found, options);
    let selected = select(&found, options, &mut imported);
    note_unknown_settings(root, &found, options, &mut imported.notes);
    let read_only = IdPatterns::new(&options.read_only);
    let not_read_only = IdPatterns::new(&options.not_read_only);
    let mut importer = Importer {
        root,
        options,
        schemas: Schemas::new(resolver, has_siblings),
        read_only,
        not_read_only,
    };
    for index in selected {
        let (found, name) = (&found[index], &names[index]);
        match importer.operation(found, name) {
            Ok(operation) => imported.operations.push(operation),
            Err(reason) => imported.skipped.push(skipped(&found.id, &reason)),
        }
    }
    imported
}

fn skipped(id: &str, reason: &str) -> SkippedOperation {
    SkippedOperation {
        id: outside_text::plain(excerpt(id), MAX_ID_BYTES),
        reason: outside_text::plain(reason, MAX_REASON_CHARS),
    }
}

/// An operation of the document.
struct Found<'a> {
    id: String,
    /// Method in upper case.
    method: String,
    path: &'a str,
    path_item: &'a Value,
    operation: &'a Value,
}

/// Returns the operations of a document, sorted by path and method, each with a unique id.
fn gather<'a>(
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
            unreadable.push(skipped(path, &reason));
            break;
        }
        match resolver.follow(path_item) {
            Ok(path_item) => gather_path(document.version(), path, path_item, &mut found),
            Err(error) => unreadable.push(skipped(path, &format!("it {error}"))),
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
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut id = method.to_ascii_lowercase();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}

/// Returns the name of the tool of each operation.
fn assign_names(found: &[Found<'_>], options: &ImportOptions) -> Vec<String> {
    let prefix = options.tool_name_prefix.as_deref().unwrap_or_default();
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}_") };
    let mut taken = BTreeSet::new();
    let mut wanted = Vec::with_capacity(found.len());
    for one in found {
        let own = options.overrides.get(&one.id).and_then(|change| change.name.as_deref());
        let mut name = format!("rest__{prefix}{}", own.unwrap_or(&one.id));
        if !taken.insert(name.clone()) {
            name = format!("{name} {} {}", one.method, one.path);
        }
        wanted.push(name);
    }
    let assigned = names::assign(wanted.iter().cloned(), names::DEFAULT_NAME_BYTES);
    wanted.into_iter().map(|name| assigned.get(&name).cloned().unwrap_or(name)).collect()
}

/// Returns the indices of the operations that the filters select.
fn select(found: &[Found<'_>], options: &ImportOptions, imported: &mut Imported) -> Vec<usize> {
    let include = Selection::new(&options.include);
    let exclude = Selection::new(&options.exclude);
    let mut selected = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let tags = one.operation["tags"].as_array().into_iter().flatten();
        let tags: Vec<&str> = tags.filter_map(Value::as_str).collect();
        let candidate = Candidate { id: &one.id, path: one.path, method: &one.method, tags: &tags };
        let is_hidden = options.overrides.get(&one.id).is_some_and(|change| change.hide);
        let is_old = one.operation["deprecated"] == true && !options.deprecated;
        let is_excluded = !exclude.is_empty() && exclude.matches(candidate);
        if is_hidden || is_old || is_excluded || !include.matches(candidate) {
            imported.excluded += 1;
        } else {
            selected.push(index);
        }
    }
    if selected.is_empty() && !found.is_empty() {
        imported.notes.push("include and exclude select no operation".to_owned());
    }
    selected
}

/// Reports settings that name something the document does not have.
fn note_unknown_settings(
    root: &Value,
    found: &[Found<'_>],
    options: &ImportOptions,
    notes: &mut Vec<String>,
) {
    let schemes = &root["components"]["securitySchemes"];
    for name in options.auth.keys().filter(|name| schemes.get(name).is_none()) {
        notes.push(format!("auth.{name}: the document has no such security scheme"));
    }
    let ids: BTreeSet<&str> = found.iter().map(|one| one.id.as_str()).collect();
    for id in options.overrides.keys().filter(|id| !ids.contains(id.as_str())) {
        notes.push(format!("overrides.{id}: the document has no such operation"));
    }
    notes.truncate(MAX_NOTES);
}

/// Import of the operations of one document.
struct Importer<'a> {
    root: &'a Value,
    options: &'a ImportOptions,
    schemas: Schemas<'a>,
    read_only: IdPatterns,
    not_read_only: IdPatterns,
}

impl<'a> Importer<'a> {
    fn operation(&mut self, found: &Found<'a>, name: &str) -> Result<Operation, String> {
        let Found { method, path, path_item, operation, .. } = found;
        let options = self.options;
        let request_method = Method::from_bytes(method.as_bytes())
            .ok()
            .filter(|method| !matches!(*method, Method::CONNECT | Method::TRACE))
            .ok_or("its method cannot be used")?;
        let template = PathTemplate::parse(path)?;
        let base = servers::base_url(self.root, path_item, operation, options)?;
        let resolver = self.schemas.resolver;
        let security = security(&resolver, self.root, operation, &base, options)?;
        let declared = parameters::collect(&resolver, path_item, operation)?;
        let declared = offered(declared, path, &template, &security, options)?;
        let body = body(&mut self.schemas, operation, method)?;
        let names = arguments::assign_names(&declared, body.is_some());
        let schema = arguments::schema(&mut self.schemas, &declared, &names, body.as_ref())
            .map_err(|problem| problem.to_string())?;
        let schema = assemble(&mut self.schemas, &schema).map_err(|problem| problem.to_string())?;
        let definition = self.definition(found, name, schema);
        Ok(Operation {
            id: found.id.clone(),
            method: request_method,
            path: (*path).to_owned(),
            definition,
            plan: Plan {
                base,
                path: template,
                arguments: planned(&declared, names),
                body: body.map(|Body { form, .. }| form),
                accept: accept(&resolver, operation),
                security,
            },
        })
    }

    fn definition(&self, found: &Found<'a>, name: &str, schema: Assembled) -> Definition {
        let change = self.options.overrides.get(&found.id);
        let summary = text(&found.operation["summary"], MAX_LABEL_CHARS);
        let mut description = match change.and_then(|change| change.description.as_deref()) {
            Some(own) => outside_text::plain(own, MAX_DESCRIPTION_CHARS),
            None => description(found),
        };
        if schema.shortened {
            description.push_str("\n\nDeeply nested arguments are not described here.");
        }
        Definition {
            name: name.to_owned(),
            label: (!summary.is_empty()).then(|| summary.replace('\n', " ")),
            description,
            parameters: schema.schema,
            hints: self.hints(&found.id, &found.method, change),
            shortened: schema.shortened,
        }
    }

    /// Returns the hints of a method. Only settings of the operator change them.
    fn hints(&self, id: &str, method: &str, change: Option<&OperationOverride>) -> ToolHints {
        let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "QUERY");
        let is_configured = self.read_only.matches(id);
        let read_only = (is_safe || is_configured) && !self.not_read_only.matches(id);
        let read_only = change.and_then(|change| change.read_only).unwrap_or(read_only);
        let is_idempotent = read_only || matches!(method, "PUT" | "DELETE");
        let idempotent = change.and_then(|change| change.idempotent).unwrap_or(is_idempotent);
        ToolHints { read_only, destructive: !read_only, idempotent, open_world: true }
    }
}

fn text(value: &Value, max_chars: usize) -> String {
    outside_text::plain(excerpt(value.as_str().unwrap_or_default()).trim(), max_chars)
}

/// Returns the description of an operation for a model.
fn description(found: &Found<'_>) -> String {
    let summary = text(&found.operation["summary"], MAX_DESCRIPTION_CHARS);
    let details = text(&found.operation["description"], MAX_DESCRIPTION_CHARS);
    let mut parts: Vec<&str> = Vec::new();
    if found.operation["deprecated"] == true {
        parts.push("Deprecated.");
    }
    if !details.starts_with(&summary) {
        parts.push(&summary);
    }
    parts.push(&details);
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        return outside_text::plain(&format!("{} {}", found.method, found.path), MAX_LABEL_CHARS);
    }
    outside_text::plain(&parts.join("\n\n"), MAX_DESCRIPTION_CHARS)
}

/// Returns the parameters that become arguments: without those that the client or the configuration
/// supplies, and with those that only the path names.
fn offered<'a>(
    declared: Vec<Parameter<'a>>,
    path: &'a str,
    template: &PathTemplate,
    security: &Security,
    options: &ImportOptions,
) -> Result<Vec<Parameter<'a>>, String> {
    let mut offered = Vec::with_capacity(declared.len());
    for name in template.parameters() {
        let same = |one: &&Parameter<'a>| one.location == Location::Path && one.name == name;
        let start = path.find(&format!("{{{name}}}")).unwrap_or_default() + 1;
        let name = path.get(start..start + name.len()).unwrap_or_default();
        offered.push(declared.iter().find(same).copied().unwrap_or(Parameter {
            name,
            location: Location::Path,
            required: true,
            form: ParameterForm::Styled(Serialization {
                style: Style::Simple,
                explode: false,
                reserved: false,
            }),
            schema: None,
            description: None,
        }));
    }
    for parameter in declared {
        let is_supplied = match parameter.location {
            Location::Path => true,
            Location::Header => {
                let name = parameter.name.to_ascii_lowercase();
                let is_own = OWN_HEADERS.contains(&name.as_str()) || name.starts_with("proxy-");
                is_own || options.configured_headers.contains(&name)
            }
            _ => false,
        };
        if is_supplied || security.supplies(parameter.location, parameter.name) {
            continue;
        }
        let is_header = parameter.location == Location::Header;
        if is_header && HeaderName::from_bytes(parameter.name.as_bytes()).is_err() {
            if parameter.required {
                return Err("it requires a header whose name is not valid".to_owned());
            }
            continue;
        }
        offered.push(parameter);
    }
    Ok(offered)
}

fn planned(declared: &[Parameter<'_>], names: Vec<String>) -> Vec<Argument> {
    let both = declared.iter().zip(names);
    both.map(|(parameter, argument)| Argument {
        argument,
        name: parameter.name.to_owned(),
        location: parameter.location,
        required: parameter.required,
        form: parameter.form,
    })
    .collect()
}

/// Returns the content type of successful responses, JSON if there is one. Others are accepted as well.
fn accept(resolver: &Resolver<'_>, operation: &Value) -> Option<HeaderValue> {
    let responses = operation["responses"].as_object().into_iter().flatten();
    let successful = responses.filter(|(status, _)| status.starts_with('2'));
    let mut best: Option<&str> = None;
    for (_, response) in successful.take(10) {
        let response = resolver.follow(response).ok()?;
        for media_type in
            response["content"].as_object().into_iter().flatten().map(|(name, _)| name)
        {
            let is_json = MediaKind::new(media_type) == MediaKind::Json;
            if best.is_none() || (is_json && best.map(MediaKind::new) != Some(MediaKind::Json)) {
                best = Some(media_type);
            }
        }
    }
    let best = best.filter(|best| !best.contains('*'))?;
    HeaderValue::from_str(&format!("{best}, */*;q=0.1")).ok()
}
