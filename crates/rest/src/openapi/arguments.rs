//! Names and schema of the arguments of an operation.

use std::collections::BTreeSet;

use rockbot_tools::names;
use serde_json::json;

use super::{
    body::Body,
    keywords,
    parameters::{Parameter, ParameterForm},
    schema::{SchemaProblem, Schemas, Translated},
};

/// Name of the argument that holds the body.
pub(super) const BODY: &str = "body";
/// Maximum length of the name of an argument, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Returns a unique name for each parameter. Of parameters with one name, the first keeps it, and the
/// others get their location: `id`, `id_in_header`.
pub(super) fn assign_names(parameters: &[Parameter<'_>], has_body: bool) -> Vec<String> {
    let mut taken: BTreeSet<String> = has_body.then(|| BODY.to_owned()).into_iter().collect();
    let mut assigned = Vec::with_capacity(parameters.len());
    for parameter in parameters {
        let clean = sanitize(parameter.name);
        let located = format!("{clean}_in_{}", parameter.location.name());
        let free = [clean.clone(), located]
            .into_iter()
            .find(|name| name.len() <= MAX_NAME_BYTES && !taken.contains(name));
        let mut seed = format!("{} {}", parameter.location.name(), parameter.name);
        let mut name = free.unwrap_or_else(|| names::with_hash(&clean, &seed, MAX_NAME_BYTES));
        while !taken.insert(name.clone()) {
            seed.push(' ');
            name = names::with_hash(&clean, &seed, MAX_NAME_BYTES);
        }
        assigned.push(name);
    }
    assigned
}

/// Replaces characters that model providers reject in the names of arguments.
fn sanitize(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    name.chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}

/// Returns the schema of all arguments.
///
/// # Errors
/// See [`SchemaProblem`].
pub(super) fn schema<'a>(
    schemas: &mut Schemas<'a>,
    parameters: &[Parameter<'a>],
    names: &[String],
    body: Option<&Body>,
) -> Result<Translated, SchemaProblem> {
    let mut properties = Vec::with_capacity(parameters.len() + 1);
    let mut required = Vec::new();
    for (parameter, name) in parameters.iter().zip(names) {
        let mut schema = match parameter.schema {
            Some(schema) => schemas.translate(schema)?,
            // Content that is not JSON, and parameters without a schema, are text.
            None if parameter.form == ParameterForm::Json => Translated::plain(json!({})),
            None => Translated::plain(json!({"type": "string"})),
        };
        if let Some(description) = parameter.description.and_then(keywords::description) {
            schema.describe(description);
        }
        properties.push((name.clone(), schema));
        if parameter.required {
            required.push(name.clone());
        }
    }
    if let Some(body) = body {
        properties.push((BODY.to_owned(), body.schema.clone()));
        if body.required {
            required.push(BODY.to_owned());
        }
    }
    Ok(Translated::object(properties, &required))
}
