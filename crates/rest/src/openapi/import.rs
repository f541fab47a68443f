//! Import of the operations of a document.

use std::collections::BTreeSet;

use http::{HeaderName, Method};
use rockbot_contracts::{ToolHints, outside_text};
use serde_json::Value;
use url::Url;

use super::{
    arguments,
    assemble::{Assembled, assemble},
    body::{Body, body},
    document::{Document, Version},
    gather::{Found, SkippedOperation, assign_names, gather},
    keywords::excerpt,
    operation::{Argument, Definition, Operation, Plan},
    options::{ImportOptions, OperationOverride},
    parameters::{self, Location, Parameter, ParameterForm},
    path::PathTemplate,
    references::Resolver,
    responses,
    schema::Schemas,
    security::{Security, security},
    select::{Candidate, IdPatterns, Selection},
    servers,
    style::{Serialization, Style},
};

/// Maximum number of tags of an operation that are looked at.
const MAX_TAGS: usize = 100;
/// Maximum number of notes.
const MAX_NOTES: usize = 100;
/// Maximum lengths of texts, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_024;
const MAX_LABEL_CHARS: usize = 80;

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

/// Imports the selected operations of a document.
///
/// The result depends on the document and the options only, and the name of a tool does not depend on
/// the filters. Takes time on large documents, about a minute at most: call this on a blocking thread.
#[must_use]
pub fn import(document: &Document, options: &ImportOptions) -> Imported {
    let root = document.root();
    let resolver = Resolver::new(root);
    let applies_ref_siblings = document.version() >= Version::V31;
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
        schemas: Schemas::new(resolver, applies_ref_siblings),
        read_only,
        not_read_only,
        bytes: document.limits().imported_bytes(),
    };
    for index in selected {
        let (found, name) = (&found[index], &names[index]);
        match importer.operation(found, name) {
            Ok(operation) => imported.operations.push(operation),
            Err(reason) => imported.skipped.push(SkippedOperation::new(&found.id, &reason)),
        }
    }
    imported
}

/// Returns the indices of the operations that the filters select.
fn select(found: &[Found<'_>], options: &ImportOptions, imported: &mut Imported) -> Vec<usize> {
    let include = Selection::new(&options.include);
    let exclude = Selection::new(&options.exclude);
    let mut selected = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let tags = one.operation["tags"].as_array().into_iter().flatten();
        let tags: Vec<&str> = tags.filter_map(Value::as_str).take(MAX_TAGS).collect();
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
    /// Size that is left for the imported operations.
    bytes: usize,
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
        if security.has_credentials() || !options.configured_headers.is_empty() {
            self.check_recipient(&base)?;
        }
        let declared = parameters::collect(&resolver, path_item, operation)?;
        let declared = offered(declared, path, &template, &security, options)?;
        let body = body(&mut self.schemas, operation, method)?;
        let names = arguments::assign_names(&declared, body.is_some());
        let schema = arguments::schema(&mut self.schemas, &declared, &names, body.as_ref())
            .map_err(|problem| problem.to_string())?;
        let schema = assemble(&mut self.schemas, &schema).map_err(|problem| problem.to_string())?;
        let fields = body.as_ref().map_or(0, |body| body.form.size());
        let size = schema.bytes + fields + path.len() + 1_024 + 256 * declared.len();
        self.bytes = self
            .bytes
            .checked_sub(size)
            .ok_or("the imported operations are too large together; include fewer operations")?;
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
                accept: responses::accept(&resolver, operation),
                security,
            },
        })
    }

    /// Checks that the server of an operation may receive credentials.
    fn check_recipient(&self, base: &Url) -> Result<(), String> {
        self.options.check_recipient(base).map_err(|origin| {
            format!(
                "the document wants the credentials at {origin}; if that is right, set baseUrl, or list \
                 this origin in credentialOrigins"
            )
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
        let own = change.and_then(|change| change.idempotent);
        let read_only = read_only && own != Some(false);
        let read_only = change.and_then(|change| change.read_only).unwrap_or(read_only);
        let idempotent = own.unwrap_or(read_only || matches!(method, "PUT" | "DELETE"));
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
