//! Translation of one schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    super::keywords::{self, Enumeration},
    SchemaProblem, Schemas,
    translated::{Reference, Translated},
};

/// Translates a schema of the document.
///
/// # Errors
/// See [`SchemaProblem`].
pub(super) fn translate<'a>(
    schemas: &mut Schemas<'a>,
    schema: &'a Value,
) -> Result<Translated, SchemaProblem> {
    let mut translation = Translation { schemas, found: Translated::default() };
    let schema = translation.schema(schema, 0, true)?;
    let mut found = translation.found;
    found.bytes = schema.to_string().len() as u64;
    found.schema = schema;
    Ok(found)
}

/// A translation with the references that it found.
struct Translation<'s, 'a> {
    schemas: &'s mut Schemas<'a>,
    found: Translated,
}

impl<'a> Translation<'_, 'a> {
    fn schema(
        &mut self,
        schema: &'a Value,
        nesting: u32,
        in_place: bool,
    ) -> Result<Value, SchemaProblem> {
        self.schemas.spend(1)?;
        self.found.nodes += 1;
        self.found.nesting = self.found.nesting.max(nesting + 1);
        let members = match schema {
            Value::Bool(accepts) => return Ok(Value::Bool(*accepts)),
            Value::Object(members) => members,
            _ => return Ok(json!({})),
        };
        let Some(Value::String(reference)) = members.get("$ref") else {
            return self.members(members, nesting, in_place).map(Value::Object);
        };
        let pointer = self.schemas.resolver.pointer(reference)?;
        let mut translated = if self.schemas.applies_ref_siblings && members.len() > 1 {
            self.members(members, nesting, in_place)?
        } else {
            let mut only = Map::new();
            let described = members.get("description").and_then(keywords::description);
            only.extend(described.map(|text| ("description".to_owned(), Value::from(text))));
            only
        };
        translated.insert("$ref".to_owned(), Value::from(pointer.as_str()));
        self.found.references.push(Reference { pointer, nesting, in_place });
        Ok(Value::Object(translated))
    }

    fn members(
        &mut self,
        members: &'a Map<String, Value>,
        nesting: u32,
        in_place: bool,
    ) -> Result<Map<String, Value>, SchemaProblem> {
        let is = |keyword: &str| members.get(keyword) == Some(&Value::Bool(true));
        let is_nullable = is("nullable") || is("x-nullable");
        let mut translated = Map::new();
        keywords::copy_simple(members, &mut translated);
        let types = keywords::types(members, is_nullable);
        match keywords::enumeration(members, types.as_ref(), is_nullable) {
            Some(Enumeration::Values(values)) => {
                translated.insert("enum".to_owned(), Value::Array(values));
            }
            Some(Enumeration::TooLarge(hint)) => {
                let text = translated.get("description").and_then(Value::as_str);
                let text = text.map_or(hint.clone(), |text| format!("{text} {hint}"));
                translated.insert("description".to_owned(), Value::from(text));
            }
            None => {}
        }
        self.properties(members, nesting, &mut translated)?;
        self.applicators(members, nesting, in_place, &mut translated)?;
        let has_types = types.is_some();
        translated.extend(types.map(|types| ("type".to_owned(), types)));
        let composed = ["allOf", "anyOf"].iter().any(|keyword| translated.contains_key(*keyword));
        if is_nullable && !has_types && composed {
            return Ok(self.nullable(translated));
        }
        Ok(translated)
    }

    /// Permits null beside a composed schema.
    fn nullable(&mut self, mut schema: Map<String, Value>) -> Map<String, Value> {
        let description = schema.remove("description");
        self.found.nodes += 2;
        let mut nullable = Map::new();
        nullable.insert("anyOf".to_owned(), json!([schema, {"type": "null"}]));
        nullable.extend(description.map(|text| ("description".to_owned(), text)));
        nullable
    }

    /// Translates the properties of an object without those of responses.
    fn properties(
        &mut self,
        members: &'a Map<String, Value>,
        nesting: u32,
        translated: &mut Map<String, Value>,
    ) -> Result<(), SchemaProblem> {
        let mut required: Vec<&'a str> = Vec::new();
        let listed = members.get("required").and_then(Value::as_array).into_iter().flatten();
        required.extend(listed.filter_map(Value::as_str));
        self.schemas.spend(required.len() as u64)?;
        let mut read_only: BTreeSet<&'a str> = BTreeSet::new();
        if let Some(Value::Object(properties)) = members.get("properties") {
            let mut kept = Map::new();
            for (name, property) in properties {
                if self.schemas.is_read_only(property) {
                    read_only.insert(name);
                    continue;
                }
                if property["required"] == true {
                    required.push(name);
                }
                kept.insert(name.clone(), self.schema(property, nesting + 1, false)?);
            }
            translated.insert("properties".to_owned(), Value::Object(kept));
        }
        if !required.is_empty() {
            for branch in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
                self.schemas.for_each_property(branch, &mut |schemas, name, property| {
                    if schemas.is_read_only(property) {
                        read_only.insert(name);
                    }
                })?;
            }
        }
        let mut unique = BTreeSet::new();
        required.retain(|name| !read_only.contains(name) && unique.insert(*name));
        if !required.is_empty() {
            translated.insert("required".to_owned(), json!(required));
        }
        Ok(())
    }

    /// Translates the other keywords that hold schemas.
    fn applicators(
        &mut self,
        members: &'a Map<String, Value>,
        nesting: u32,
        in_place: bool,
        translated: &mut Map<String, Value>,
    ) -> Result<(), SchemaProblem> {
        for keyword in ["additionalProperties", "contains", "items", "propertyNames"] {
            match members.get(keyword) {
                Some(held @ (Value::Object(_) | Value::Bool(_))) => {
                    let held = self.schema(held, nesting + 1, false)?;
                    translated.insert(keyword.to_owned(), held);
                }
                Some(Value::Array(list)) if keyword == "items" && !list.is_empty() => {
                    let list = self.list(list, nesting, false)?;
                    translated.insert("prefixItems".to_owned(), list);
                }
                _ => {}
            }
        }
        if let Some(Value::Array(list)) = members.get("prefixItems")
            && !list.is_empty()
        {
            let list = self.list(list, nesting, false)?;
            translated.insert("prefixItems".to_owned(), list);
        }
        if let Some(Value::Object(by_pattern)) = members.get("patternProperties") {
            let mut kept = Map::new();
            for (pattern, held) in by_pattern {
                kept.insert(pattern.clone(), self.schema(held, nesting + 1, false)?);
            }
            translated.insert("patternProperties".to_owned(), Value::Object(kept));
        }
        self.composition(members, nesting, in_place, translated)
    }

    /// Translates `allOf`, `anyOf` and `oneOf`. The latter becomes `anyOf`.
    fn composition(
        &mut self,
        members: &'a Map<String, Value>,
        nesting: u32,
        in_place: bool,
        translated: &mut Map<String, Value>,
    ) -> Result<(), SchemaProblem> {
        let list = |keyword: &str| match members.get(keyword) {
            Some(Value::Array(list)) if !list.is_empty() => Some(list),
            _ => None,
        };
        let mut all = Vec::new();
        if let Some(branches) = list("allOf") {
            for branch in branches {
                all.push(self.schema(branch, nesting + 1, in_place)?);
            }
        }
        let alternatives: Vec<_> = [list("oneOf"), list("anyOf")].into_iter().flatten().collect();
        let discriminator = members.get("discriminator");
        for branches in &alternatives {
            let mut any = Vec::with_capacity(branches.len());
            for branch in *branches {
                let mut translated = self.schema(branch, nesting + 1, in_place)?;
                if let Some(discriminator) = discriminator {
                    self.discriminate(discriminator, branch, &mut translated);
                }
                any.push(translated);
            }
            if alternatives.len() == 1 {
                translated.insert("anyOf".to_owned(), Value::Array(any));
            } else {
                self.found.nodes += 1;
                all.push(json!({"anyOf": any}));
            }
        }
        if !all.is_empty() {
            translated.insert("allOf".to_owned(), Value::Array(all));
        }
        Ok(())
    }

    fn list(
        &mut self,
        list: &'a [Value],
        nesting: u32,
        in_place: bool,
    ) -> Result<Value, SchemaProblem> {
        let mut translated = Vec::with_capacity(list.len());
        for held in list {
            translated.push(self.schema(held, nesting + 1, in_place)?);
        }
        Ok(Value::Array(translated))
    }

    /// Adds the value of the discriminating property to a branch that does not state it.
    fn discriminate(&mut self, discriminator: &Value, branch: &'a Value, translated: &mut Value) {
        let Some(property) = discriminator["propertyName"].as_str() else { return };
        let (Some(reference), Value::Object(translated)) = (branch["$ref"].as_str(), translated)
        else {
            return;
        };
        let stated = &self.schemas.followed(branch)["properties"][property];
        if stated.get("const").is_some() || stated.get("enum").is_some() {
            return;
        }
        let name = reference.rsplit('/').next().unwrap_or(reference);
        let mapping = discriminator["mapping"].as_object().into_iter().flatten();
        let mut values: Vec<&str> = mapping
            .filter(|(_, target)| {
                target.as_str().is_some_and(|target| target == reference || target == name)
            })
            .map(|(value, _)| value.as_str())
            .collect();
        if values.is_empty() {
            values.push(name);
        }
        self.found.nodes += 1;
        let stated = match values.as_slice() {
            [one] => json!({"const": one}),
            _ => json!({"enum": values}),
        };
        let mut properties = Map::new();
        properties.insert(property.to_owned(), stated);
        translated.insert("properties".to_owned(), Value::Object(properties));
        translated.insert("required".to_owned(), json!([property]));
    }
}
