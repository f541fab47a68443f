//! Size of a schema with its references expanded, counted independently of the importer.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Keywords whose value is one schema.
const ONE: [&str; 10] = [
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas. `$defs` counts where it is referenced.
const NAMED: [&str; 3] = ["dependentSchemas", "patternProperties", "properties"];

/// Returns the number of subschemas of a schema with its references expanded. Recursion counts once.
///
/// The target of a reference is counted once and its size is added for each reference, so that nothing is
/// expanded in fact.
pub(crate) fn expanded_size(schema: &Value) -> u64 {
    let mut count = Count { root: schema, known: HashMap::new(), open: HashSet::new() };
    count.size(schema)
}

struct Count<'a> {
    root: &'a Value,
    /// Sizes of the targets of references.
    known: HashMap<&'a str, u64>,
    /// Targets that are being counted.
    open: HashSet<&'a str>,
}

impl<'a> Count<'a> {
    fn size(&mut self, schema: &'a Value) -> u64 {
        let mut size = 1_u64;
        let one = ONE.iter().filter_map(|&keyword| schema.get(keyword));
        let lists = LISTS.iter().filter_map(|&keyword| schema.get(keyword)?.as_array()).flatten();
        let named = NAMED.iter().filter_map(|&keyword| schema.get(keyword)?.as_object());
        let named = named.flat_map(|named| named.values());
        for held in one.chain(lists).chain(named) {
            size = size.saturating_add(self.size(held));
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            size = size.saturating_add(self.target_size(reference));
        }
        size
    }

    fn target_size(&mut self, reference: &'a str) -> u64 {
        if let Some(&known) = self.known.get(reference) {
            return known;
        }
        if !self.open.insert(reference) {
            return 1;
        }
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let size = target.map_or(0, |target| self.size(target));
        self.open.remove(reference);
        self.known.insert(reference, size);
        size
    }
}
