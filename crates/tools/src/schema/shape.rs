//! The size of a schema with its references expanded.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{SchemaError, subschemas};

/// Maximum number of subschemas, with references expanded and recursion counted once. Ten times the limit of
/// imported `OpenAPI` operations, because schemas of other servers cannot be shortened to fit: references are
/// compiled once and not expanded, and the steps of an evaluation are limited.
pub(super) const MAX_EXPANDED: u64 = 100_000;
/// Maximum nesting of subschemas, with references expanded and recursion counted once.
pub(super) const MAX_NESTING: u32 = 64;

/// The size of an expanded schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    subschemas: u64,
    nesting: u32,
}

/// Checks that an expanded schema stays within [`MAX_EXPANDED`] and [`MAX_NESTING`], and that every
/// reference leads to a place in the schema itself.
///
/// The size of each subschema is computed once, so that the check takes linear time.
///
/// # Errors
/// Returns the exceeded limit, or the reference.
pub(super) fn check(schema: &Value) -> Result<(), SchemaError> {
    let dialect = schema["$schema"].as_str().unwrap_or_default();
    let id = if dialect.contains("/draft-04/") { "id" } else { "$id" };
    let mut names = HashMap::new();
    let mut pending: Vec<_> = schema.as_object().into_iter().collect();
    while let Some(schema) = pending.pop() {
        let text = |keyword| schema.get(keyword).and_then(Value::as_str);
        let anchors = [text("$anchor"), text("$dynamicAnchor")];
        for anchor in anchors.into_iter().flatten() {
            names.insert(format!("#{anchor}"), schema);
        }
        if let Some(id) = text(id) {
            names.insert(id.to_owned(), schema);
        }
        pending.extend(subschemas::held(schema).filter_map(|(_, held)| held.as_object()));
    }
    let mut shape = Shape { id, names, known: HashMap::new(), open: HashSet::new() };
    shape.size(schema, schema, 0).map(|_| ())
}

struct Shape<'a> {
    /// The keyword of identifiers, which depends on the dialect.
    id: &'static str,
    /// Schemas by `#anchor` and by identifier.
    names: HashMap<String, &'a Map<String, Value>>,
    /// Sizes by the address of the subschema.
    known: HashMap<*const Map<String, Value>, Size>,
    /// Subschemas whose size is being computed.
    open: HashSet<*const Map<String, Value>>,
}

impl<'a> Shape<'a> {
    /// Returns the size of `schema`, whose references are relative to `base`, at a nesting of `outer`.
    fn size(
        &mut self,
        schema: &'a Value,
        base: &'a Value,
        outer: u32,
    ) -> Result<Size, SchemaError> {
        let Value::Object(members) = schema else {
            return Ok(Size { subschemas: 1, nesting: 1 });
        };
        let has_own_base = self.id_of(schema).is_some_and(|id| !id.starts_with('#'));
        let base = if has_own_base { schema } else { base };
        self.members_size(members, base, outer)
    }

    fn members_size(
        &mut self,
        members: &'a Map<String, Value>,
        base: &'a Value,
        outer: u32,
    ) -> Result<Size, SchemaError> {
        let address = std::ptr::from_ref(members);
        if let Some(known) = self.known.get(&address) {
            let nested = outer.saturating_add(known.nesting);
            return if nested > MAX_NESTING { Err(SchemaError::TooNested) } else { Ok(*known) };
        }
        if outer >= MAX_NESTING {
            return Err(SchemaError::TooNested);
        }
        if !self.open.insert(address) {
            // Recursion: evaluation continues only in a part of the arguments.
            return Ok(Size { subschemas: 1, nesting: 0 });
        }
        let mut total = Size { subschemas: 1, nesting: 0 };
        let mut add = |inner: Size| {
            total.subschemas = total.subschemas.saturating_add(inner.subschemas);
            total.nesting = total.nesting.max(inner.nesting);
        };
        for applied in subschemas::applied(members) {
            add(self.size(applied, base, outer + 1)?);
        }
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(Value::String(reference)) = members.get(keyword) else { continue };
            add(self.reference_size(reference, base, outer + 1)?);
        }
        self.open.remove(&address);
        total.nesting += 1;
        if total.subschemas > MAX_EXPANDED {
            return Err(SchemaError::TooLarge);
        }
        self.known.insert(address, total);
        Ok(total)
    }

    fn reference_size(
        &mut self,
        reference: &str,
        base: &'a Value,
        outer: u32,
    ) -> Result<Size, SchemaError> {
        if let Some(named) = self.names.get(reference).copied() {
            return self.members_size(named, base, outer);
        }
        // The reference may name the base itself: `https://host/schema#/$defs/x`.
        let (resource, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = match resource {
            "" => base,
            _ if self.id_of(base).is_some_and(|id| id.trim_end_matches('#') == resource) => base,
            _ => return Err(SchemaError::External { reference: shorten(reference) }),
        };
        let pointer = percent_decoded(fragment);
        match base.pointer(&pointer) {
            Some(target) => self.size(target, base, outer),
            None => Err(SchemaError::Unresolved { reference: shorten(reference) }),
        }
    }

    fn id_of(&self, schema: &'a Value) -> Option<&'a str> {
        schema.get(self.id)?.as_str()
    }
}

/// Truncates a reference for an error.
fn shorten(reference: &str) -> String {
    reference.chars().take(120).collect()
}

/// Decodes `%41` in the fragment of a reference. Invalid sequences stay as they are.
fn percent_decoded(fragment: &str) -> String {
    if !fragment.contains('%') {
        return fragment.to_owned();
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let decoded = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(decoded.unwrap_or(first));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
