//! Assembly of the schema of a tool within its limits.
//!
//! References are inlined while the schema stays small. Otherwise they stay references to `$defs`. When
//! the schema is still too large, nested descriptions are dropped, and then optional properties of deep
//! objects accept anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use rockbot_tools::{ArgumentSchema, names};
use serde_json::{Map, Value, json};

use super::{
    keywords::{self, Holder},
    schema::{MAX_NESTING, SchemaProblem, Schemas, Size, Translated},
};

/// Maximum size of a schema with inlined references, in bytes.
const MAX_INLINED_BYTES: u64 = 16 * 1024;
/// Maximum size of a schema, in bytes.
pub(super) const MAX_SCHEMA_BYTES: usize = 48 * 1024;
/// Maximum number of subschemas with references expanded.
const MAX_EXPANDED: u64 = 10_000;
/// Depths below which optional properties accept anything, tried in this order.
const DEPTHS: [u32; 4] = [4, 3, 2, 1];
/// Size of definitions that may fit without their descriptions, in bytes.
const MAX_DESCRIBED_BYTES: u64 = 4 * MAX_SCHEMA_BYTES as u64;
/// Nesting below which a shortened schema accepts anything.
const MAX_SHORTENED_NESTING: u32 = MAX_NESTING - 16;

/// Reason why a tool has no schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AssemblyError {
    #[error(transparent)]
    Problem(#[from] SchemaProblem),
    #[error(
        "its arguments need a schema above {MAX_SCHEMA_BYTES} bytes or {MAX_EXPANDED} subschemas"
    )]
    TooLarge,
    #[error("its arguments cannot be validated: {0}")]
    Invalid(String),
}

/// A schema within its limits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assembled {
    pub(super) schema: Value,
    /// Size of the JSON text.
    pub(super) bytes: usize,
    /// Parts of the schema were left out.
    pub(super) shortened: bool,
}

/// Returns the schema of the arguments of a tool, whose references are resolved within itself.
///
/// # Errors
/// See [`AssemblyError`].
pub(super) fn assemble(
    schemas: &mut Schemas<'_>,
    arguments: &Translated,
) -> Result<Assembled, AssemblyError> {
    let size = match schemas.size(arguments) {
        Ok(size) if !size.is_endless => Some(size),
        Ok(_) | Err(SchemaProblem::TooNested) => None,
        Err(problem) => return Err(problem.into()),
    };
    let size = size.filter(|size| size.nodes <= MAX_EXPANDED);
    if let Some(size) = size
        && let Some(schema) = unshortened(schemas, arguments, size)?
    {
        return Ok(schema);
    }
    let mut reason = AssemblyError::TooLarge;
    for depth in DEPTHS {
        let form = Form::Shortened { depth };
        let Some(schema) = Assembly::new(schemas, form, false).written(&arguments.schema)? else {
            continue;
        };
        match checked(schema) {
            Ok(Some((schema, bytes))) => {
                return Ok(Assembled { schema, bytes, shortened: true });
            }
            Ok(None) => {}
            Err(error) => reason = AssemblyError::Invalid(error),
        }
    }
    Err(reason)
}

/// Returns the schema with all of its properties, if it fits.
fn unshortened(
    schemas: &mut Schemas<'_>,
    arguments: &Translated,
    size: Size,
) -> Result<Option<Assembled>, AssemblyError> {
    if !size.is_recursive && size.bytes <= MAX_INLINED_BYTES {
        let mut assembly = Assembly::new(schemas, Form::Inlined, true);
        if let Some(schema) = assembly.written(&arguments.schema)?
            && let Ok(Some((schema, bytes))) = checked(schema)
        {
            return Ok(Some(Assembled { schema, bytes, shortened: false }));
        }
    }
    let Some(definitions) = schemas.closure(arguments, MAX_DESCRIBED_BYTES)? else {
        return Ok(None);
    };
    for descriptions in [true, false] {
        let form = Form::Definitions { names: definition_names(definitions.keys()) };
        let mut assembly = Assembly::new(schemas, form, descriptions);
        let Some(schema) = assembly.written_with(&arguments.schema, &definitions)? else {
            continue;
        };
        if let Ok(Some((schema, bytes))) = checked(schema) {
            return Ok(Some(Assembled { schema, bytes, shortened: !descriptions }));
        }
    }
    Ok(None)
}

/// Returns the schema with its size if it is small enough and tools accept it.
fn checked(schema: Value) -> Result<Option<(Value, usize)>, String> {
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Ok(None);
    }
    // Texts of the document were checked one by one; names of properties were not.
    if !keywords::is_visible(&schema) {
        return Err("the name of a property has hidden characters".to_owned());
    }
    ArgumentSchema::compile(&schema).map_err(|error| error.to_string())?;
    Ok(Some((schema, bytes)))
}

/// Returns a name in `$defs` for each pointer.
fn definition_names<'p>(pointers: impl Iterator<Item = &'p String>) -> BTreeMap<String, String> {
    let mut taken = BTreeSet::new();
    let mut assigned = BTreeMap::new();
    for pointer in pointers {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let clean = names::sanitize(last, names::DEFAULT_NAME_BYTES);
        let name = if taken.contains(&clean) {
            names::with_hash(&clean, pointer, names::DEFAULT_NAME_BYTES)
        } else {
            clean
        };
        taken.insert(name.clone());
        assigned.insert(pointer.clone(), name);
    }
    assigned
}

/// The form of references in a schema.
enum Form {
    /// Replaced by their targets.
    Inlined,
    /// References to `$defs`, by the pointer in the document.
    Definitions { names: BTreeMap<String, String> },
    /// Replaced by their targets, without recursion. Optional properties below the depth accept anything.
    Shortened { depth: u32 },
}

/// Place of a subschema.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Number of properties around it.
    depth: u32,
    /// Number of subschemas around it.
    nesting: u32,
}

/// Writes a schema. Results are `None` when it becomes too large.
struct Assembly<'s, 'a> {
    schemas: &'s mut Schemas<'a>,
    form: Form,
    /// Keeps descriptions below the arguments themselves.
    descriptions: bool,
    /// Subschemas that may still be written.
    rest: u64,
    /// References that are being replaced.
    open: Vec<String>,
}

impl<'s, 'a> Assembly<'s, 'a> {
    fn new(schemas: &'s mut Schemas<'a>, form: Form, descriptions: bool) -> Self {
        Self { schemas, form, descriptions, rest: MAX_EXPANDED, open: Vec::new() }
    }

    fn written(&mut self, schema: &Value) -> Result<Option<Value>, SchemaProblem> {
        self.schema(schema, Place { depth: 0, nesting: 0 })
    }

    fn written_with(
        &mut self,
        schema: &Value,
        definitions: &BTreeMap<String, Rc<Translated>>,
    ) -> Result<Option<Value>, SchemaProblem> {
        let Some(mut written) = self.written(schema)? else { return Ok(None) };
        let mut named = Map::new();
        for (pointer, definition) in definitions {
            let place = Place { depth: 2, nesting: 0 };
            let Some(definition) = self.schema(&definition.schema, place)? else {
                return Ok(None);
            };
            if let Form::Definitions { names } = &self.form
                && let Some(name) = names.get(pointer)
            {
                named.insert(name.clone(), definition);
            }
        }
        if !named.is_empty() {
            written["$defs"] = Value::Object(named);
        }
        Ok(Some(written))
    }

    fn schema(&mut self, schema: &Value, place: Place) -> Result<Option<Value>, SchemaProblem> {
        self.schemas.spend(1)?;
        let Some(rest) = self.rest.checked_sub(1) else { return Ok(None) };
        self.rest = rest;
        let Value::Object(members) = schema else { return Ok(Some(schema.clone())) };
        let is_shortened = matches!(self.form, Form::Shortened { .. });
        if is_shortened && place.nesting > MAX_SHORTENED_NESTING {
            return Ok(Some(json!({})));
        }
        match members.get("$ref") {
            Some(Value::String(pointer)) => self.reference(pointer, members, place),
            _ => Ok(self.members(members, place)?.map(Value::Object)),
        }
    }

    fn reference(
        &mut self,
        pointer: &String,
        members: &Map<String, Value>,
        place: Place,
    ) -> Result<Option<Value>, SchemaProblem> {
        let Some(mut siblings) = self.members(members, place)? else { return Ok(None) };
        if let Form::Definitions { names } = &self.form {
            let name = names.get(pointer).map_or("", String::as_str);
            siblings.insert("$ref".to_owned(), Value::from(format!("#/$defs/{name}")));
            return Ok(Some(Value::Object(siblings)));
        }
        if self.open.contains(pointer) {
            return Ok(Some(Value::Object(siblings)));
        }
        let definition = self.schemas.definition(pointer)?;
        self.open.push(pointer.clone());
        let inner = Place { nesting: place.nesting + 1, ..place };
        let target = self.schema(&definition.schema, inner)?;
        self.open.pop();
        Ok(target.map(|target| merged(target, siblings)))
    }

    /// Writes all keywords but `$ref`.
    fn members(
        &mut self,
        members: &Map<String, Value>,
        place: Place,
    ) -> Result<Option<Map<String, Value>>, SchemaProblem> {
        let mut written = Map::new();
        let inner = Place { nesting: place.nesting + 1, ..place };
        for (keyword, value) in members {
            let value = match (keywords::holder(keyword), value) {
                (Some(Holder::InPlace | Holder::Parts), Value::Array(list)) => {
                    let mut held = Vec::with_capacity(list.len());
                    for schema in list {
                        let Some(schema) = self.schema(schema, inner)? else { return Ok(None) };
                        held.push(schema);
                    }
                    Value::Array(held)
                }
                (Some(Holder::Named), Value::Object(named)) => {
                    let Some(named) = self.properties(named, members, inner)? else {
                        return Ok(None);
                    };
                    Value::Object(named)
                }
                (Some(Holder::One), schema) => {
                    let Some(schema) = self.schema(schema, inner)? else { return Ok(None) };
                    schema
                }
                _ if keyword == "$ref" => continue,
                _ if keyword == "description" && !self.descriptions && place.depth > 1 => continue,
                _ => value.clone(),
            };
            written.insert(keyword.clone(), value);
        }
        Ok(Some(written))
    }

    fn properties(
        &mut self,
        named: &Map<String, Value>,
        members: &Map<String, Value>,
        place: Place,
    ) -> Result<Option<Map<String, Value>>, SchemaProblem> {
        let place = Place { depth: place.depth + 1, ..place };
        let required = members.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
        let mut written = Map::new();
        for (name, schema) in named {
            let is_deep = matches!(self.form, Form::Shortened { depth } if place.depth > depth);
            let schema = if is_deep && !required.contains(name.as_str()) {
                json!({})
            } else {
                let Some(schema) = self.schema(schema, place)? else { return Ok(None) };
                schema
            };
            written.insert(name.clone(), schema);
        }
        Ok(Some(written))
    }
}

/// Combines the target of a reference with the keywords beside the reference.
fn merged(target: Value, mut siblings: Map<String, Value>) -> Value {
    let mut target = match target {
        Value::Object(target) => target,
        // The schema that accepts everything or nothing.
        other if siblings.is_empty() => return other,
        other => return json!({"allOf": [other, siblings]}),
    };
    let description = siblings.remove("description");
    let is_disjoint = siblings.keys().all(|keyword| !target.contains_key(keyword));
    if !is_disjoint {
        let mut both = siblings;
        let mut all = vec![Value::Object(target)];
        if let Some(Value::Array(more)) = both.remove("allOf") {
            all.extend(more);
        }
        both.insert("allOf".to_owned(), Value::Array(all));
        both.extend(description.map(|text| ("description".to_owned(), text)));
        return Value::Object(both);
    }
    target.extend(siblings);
    target.extend(description.map(|text| ("description".to_owned(), text)));
    Value::Object(target)
}
