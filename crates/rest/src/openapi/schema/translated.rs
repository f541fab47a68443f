//! Translated schemas, before their references are expanded.

use serde_json::{Map, Value, json};

/// A reference in a translated schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) pointer: String,
    /// Number of subschemas around it.
    pub(super) nesting: u32,
    /// It applies to the same value as the schema that it is in.
    pub(super) in_place: bool,
}

/// A translated schema.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Translated {
    pub(in super::super) schema: Value,
    pub(super) references: Vec<Reference>,
    /// Number of subschemas without the targets of references.
    pub(super) nodes: u64,
    /// Nesting of subschemas without the targets of references.
    pub(super) nesting: u32,
    /// Size of the JSON text.
    pub(super) bytes: u64,
}

impl Translated {
    /// Wraps a schema without references.
    pub(in super::super) fn plain(schema: Value) -> Self {
        let bytes = schema.to_string().len() as u64;
        // Such a schema is at most an object with a few properties.
        Self { schema, references: Vec::new(), nodes: 8, nesting: 2, bytes }
    }

    /// Returns the schema of a list of such values.
    pub(in super::super) fn into_array(self) -> Self {
        let mut list = Self::plain(Value::Null);
        let item = list.absorb(self, 1);
        list.schema = json!({"type": "array", "items": item});
        list.bytes += 30;
        list
    }

    /// Returns the schema of an object with these properties and no others.
    pub(in super::super) fn object(properties: Vec<(String, Self)>, required: &[String]) -> Self {
        let mut object = Self::plain(Value::Null);
        let mut members = Map::new();
        for (name, property) in properties {
            object.bytes += name.len() as u64 + 4;
            let property = object.absorb(property, 1);
            members.insert(name, property);
        }
        object.schema = json!({
            "type": "object",
            "properties": members,
            "additionalProperties": false,
        });
        if !required.is_empty() {
            object.schema["required"] = json!(required);
        }
        object.bytes += 80 + required.iter().map(|name| name.len() as u64 + 3).sum::<u64>();
        object
    }

    /// Sets the description, if the schema can hold one.
    pub(in super::super) fn describe(&mut self, description: String) {
        if let Value::Object(members) = &mut self.schema {
            self.bytes += description.len() as u64 + 20;
            members.insert("description".to_owned(), Value::from(description));
        }
    }

    /// Sets the default of the description.
    pub(in super::super) fn describe_if_absent(&mut self, description: &str) {
        if self.schema.get("description").is_none() {
            self.describe(description.to_owned());
        }
    }

    fn absorb(&mut self, inner: Self, nesting: u32) -> Value {
        self.nodes += inner.nodes;
        self.bytes += inner.bytes;
        self.nesting = self.nesting.max(inner.nesting + nesting);
        self.references.extend(inner.references.into_iter().map(|reference| Reference {
            nesting: reference.nesting + nesting,
            in_place: false,
            ..reference
        }));
        inner.schema
    }
}
