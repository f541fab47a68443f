//! Properties of schemas in a document.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{SchemaProblem, Schemas};

/// Maximum nesting of `allOf` that is searched for properties.
const MAX_COMPOSITION: u32 = 4;

impl<'a> Schemas<'a> {
    /// Follows a schema's references. A broken one is reported when the schema is translated.
    pub(super) fn followed(&self, schema: &'a Value) -> &'a Value {
        self.resolver.follow(schema).unwrap_or(schema)
    }

    /// Calls `visit` with each property of a schema and of the schemas that it is composed of.
    pub(in super::super) fn for_each_property(
        &mut self,
        schema: &'a Value,
        visit: &mut dyn FnMut(&Self, &'a str, &'a Value),
    ) -> Result<(), SchemaProblem> {
        self.visit_properties(schema, 0, visit)
    }

    fn visit_properties(
        &mut self,
        schema: &'a Value,
        depth: u32,
        visit: &mut dyn FnMut(&Self, &'a str, &'a Value),
    ) -> Result<(), SchemaProblem> {
        self.spend(1)?;
        let schema = self.followed(schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.spend(1)?;
            visit(self, name, property);
        }
        if depth < MAX_COMPOSITION {
            for branch in schema["allOf"].as_array().into_iter().flatten() {
                self.visit_properties(branch, depth + 1, visit)?;
            }
        }
        Ok(())
    }

    /// Returns the names that a schema, and those that it is composed of, require.
    pub(in super::super) fn required_names(&self, schema: &'a Value) -> BTreeSet<&'a str> {
        let mut names = BTreeSet::new();
        let mut pending = vec![(schema, 0)];
        while let Some((schema, depth)) = pending.pop() {
            let schema = self.followed(schema);
            let listed = schema["required"].as_array().into_iter().flatten();
            names.extend(listed.filter_map(Value::as_str));
            if depth < MAX_COMPOSITION && pending.len() < 1000 {
                let branches = schema["allOf"].as_array().into_iter().flatten();
                pending.extend(branches.map(|branch| (branch, depth + 1)));
            }
        }
        names
    }

    /// Returns whether a property belongs to responses only.
    pub(in super::super) fn is_read_only(&self, property: &'a Value) -> bool {
        property["readOnly"] == true || self.followed(property)["readOnly"] == true
    }
}
