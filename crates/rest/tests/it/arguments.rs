//! Arguments that satisfy the schema of a tool.

use proptest::{
    strategy::{Strategy, ValueTree},
    string::string_regex,
    test_runner::TestRunner,
};
use serde_json::{Map, Value, json};

/// Levels below which only required properties are given.
const LEVELS: usize = 4;
/// Attempts to find a text that matches a pattern within its limits.
const ATTEMPTS: usize = 200;

/// A choice among the arguments that satisfy a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    /// Gives optional properties, as far as they do not recur.
    pub(crate) is_complete: bool,
    /// Satisfies the last branch of `anyOf` and `oneOf` instead of the first.
    pub(crate) is_last_branch: bool,
}

impl Variant {
    pub(crate) const ALL: [Self; 4] = [
        Self { is_complete: true, is_last_branch: false },
        Self { is_complete: false, is_last_branch: false },
        Self { is_complete: true, is_last_branch: true },
        Self { is_complete: false, is_last_branch: true },
    ];

    /// Returns arguments that satisfy the schema.
    pub(crate) fn arguments(self, schema: &Value) -> Value {
        Generator { root: schema, variant: self }.value(schema, 0)
    }
}

struct Generator<'a> {
    root: &'a Value,
    variant: Variant,
}

impl Generator<'_> {
    fn value(&self, schema: &Value, level: usize) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = reference.strip_prefix('#').and_then(|at| self.root.pointer(at));
            return self.value(target.expect("a local reference"), level + 1);
        }
        if let Some(fixed) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return fixed.clone();
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let parts = parts.iter().map(|part| self.value(part, level));
            return parts.fold(self.own_value(schema, level), merged);
        }
        let branches = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array());
        let is_last = self.variant.is_last_branch;
        let branch =
            branches.and_then(|branches| if is_last { branches.last() } else { branches.first() });
        let own = self.own_value(schema, level);
        branch.map_or(own.clone(), |branch| merged(own, self.value(branch, level)))
    }

    /// Returns the value of a schema without its branches.
    fn own_value(&self, schema: &Value, level: usize) -> Value {
        let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
        let kind = kind.or_else(|| schema.get("properties").map(|_| "object"));
        let kind = kind.or_else(|| schema.get("items").map(|_| "array"));
        match kind {
            Some("object") => self.object(schema, level),
            Some("array") => self.array(schema, level),
            Some("integer" | "number") => number(schema),
            Some("boolean") => json!(true),
            Some("string") => text(schema).into(),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, level: usize) -> Value {
        let is_required = |name: &String| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
        };
        let has_all = self.variant.is_complete && level < LEVELS;
        let mut members = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if !has_all && !is_required(name) {
                continue;
            }
            let value = match name.as_str() {
                // Of a file.
                "contentType" => json!("text/plain"),
                _ => self.value(property, level + 1),
            };
            if !value.is_null() {
                members.insert(name.clone(), value);
            } else if is_required(name) {
                members.insert(name.clone(), json!({}));
            }
        }
        Value::Object(members)
    }

    fn array(&self, schema: &Value, level: usize) -> Value {
        let items = schema.get("items").filter(|items| items.is_object());
        // A form with one item is not recognized as a list everywhere.
        let usual = if level < LEVELS { 2 } else { 0 };
        let least = schema["minItems"].as_u64().unwrap_or(0).max(usual);
        let count = schema["maxItems"].as_u64().map_or(least, |most| least.min(most));
        let item = items.map_or_else(|| json!("item"), |items| self.value(items, level + 1));
        if item.is_null() {
            return json!([]);
        }
        let count = if schema["uniqueItems"] == true { count.min(1) } else { count };
        Value::Array(vec![item; usize::try_from(count).expect("a length")])
    }
}

/// Returns a value that satisfies both of the schemas that the values satisfy.
fn merged(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            first.extend(second);
            Value::Object(first)
        }
        (first, Value::Null) => first,
        (_, second) => second,
    }
}

fn number(schema: &Value) -> Value {
    let least = schema["minimum"].as_i64();
    let above = schema["exclusiveMinimum"].as_i64().map(|bound| bound + 1);
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    let least = least.or(above).unwrap_or(1).min(most);
    match schema["multipleOf"].as_i64() {
        Some(factor) if factor > 0 => json!((least + factor - 1) / factor * factor),
        _ => json!(least),
    }
}

fn text(schema: &Value) -> String {
    let count = |name: &str| schema[name].as_u64().and_then(|count| usize::try_from(count).ok());
    let (least, most) = (count("minLength").unwrap_or(0), count("maxLength").unwrap_or(usize::MAX));
    if let Some(pattern) = schema["pattern"].as_str() {
        return matching(pattern, least, most);
    }
    let text = match schema["format"].as_str().unwrap_or_default() {
        "date" => "2026-01-31",
        "date-time" => "2026-01-31T12:00:00Z",
        "time" => "12:00:00Z",
        "uuid" => "8c9a7a3e-6c55-4f6b-9a35-5d2d8f1c7b10",
        "email" => "a@example.com",
        "hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "url" => "https://example.com/",
        // Base64 as well.
        _ => "text",
    };
    let padding = least.saturating_sub(text.len());
    let text = format!("{text}{}", "x".repeat(padding));
    text.chars().take(most).collect()
}

/// Returns a text of letters, digits and the characters of the pattern that matches it. Anchors have no
/// effect.
fn matching(pattern: &str, least: usize, most: usize) -> String {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let pattern = pattern.strip_suffix('$').unwrap_or(pattern);
    let plain = pattern.replace("\\d", "[0-9]").replace("\\w", "[A-Za-z0-9_]");
    // A negated class and a dot would match any character of Unicode.
    let plain = plain.replace("[^", "[a-z0-9&&^").replace(".*", "[a-z]*").replace(".+", "[a-z]+");
    let plain = narrowed(&plain);
    // A server that knows the pattern rejects any other text.
    let Ok(strategy) = string_regex(&plain) else { return "text".to_owned() };
    let mut runner = TestRunner::deterministic();
    for _ in 0..ATTEMPTS {
        let mut tree = strategy.new_tree(&mut runner).expect("a text");
        while tree.current().chars().count() > most && tree.simplify() {}
        if (least..=most).contains(&tree.current().chars().count()) {
            return tree.current();
        }
    }
    "text".to_owned()
}

/// Puts the negated part of `[a-z0-9&&^…]` into a class of its own, as the syntax requires.
fn narrowed(pattern: &str) -> String {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once("[a-z0-9&&^") {
        let (class, end) = after.split_once(']').expect("the end of a class");
        text.push_str(&format!("{before}[a-z0-9&&[^{class}]]"));
        rest = end;
    }
    text + rest
}
