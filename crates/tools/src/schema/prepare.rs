//! The copy of a schema that arguments are validated against.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

use super::subschemas;

/// Maximum number of regular expressions that are checked.
const MAX_PATTERNS: usize = 64;
/// Maximum size of a compiled regular expression, in bytes.
const MAX_PATTERN_BYTES: usize = 32 * 1024;

/// Returns regular expressions that match in linear time.
pub(super) fn pattern_options() -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES)
}

/// A schema to evaluate.
pub(super) struct Prepared {
    pub(super) schema: Value,
    /// Number of regular expressions in it.
    pub(super) patterns: u64,
}

/// Returns a copy of `schema` that accepts at least the same arguments, and whose evaluation reads the
/// arguments in every subschema, so that its steps can be counted.
///
/// Regular expressions that cannot match in linear time, because they look around or refer back, are
/// left to the tool itself, and so are those above [`MAX_PATTERNS`] and [`MAX_PATTERN_BYTES`].
pub(super) fn prepare(schema: &Value) -> Prepared {
    let mut prepared = schema.clone();
    let mut preparation = Preparation { patterns: HashMap::new(), references: Vec::new() };
    preparation.visit("", &mut prepared);
    // References may lead to places that no keyword of JSON Schema covers.
    while let Some(pointer) = preparation.references.pop() {
        if let Some(target) = prepared.pointer_mut(&pointer)
            && target.as_object().is_some_and(|target| !target.contains_key(TOUCH))
        {
            preparation.visit("", target);
        }
    }
    let patterns = preparation.patterns.values().map(|suitable| u64::from(*suitable)).sum();
    Prepared { schema: prepared, patterns }
}

/// A keyword that reads the arguments first of all and, with a value of 0, accepts all of them.
const TOUCH: &str = "minProperties";

struct Preparation {
    /// Regular expressions with their suitability.
    patterns: HashMap<String, bool>,
    /// JSON pointers of references.
    references: Vec<String>,
}

impl Preparation {
    fn visit(&mut self, keyword: &str, schema: &mut Value) {
        // A list of constants would be evaluated without a step.
        match schema {
            Value::Bool(true) if subschemas::is_in_place_list(keyword) => *schema = json!({}),
            Value::Bool(false) if subschemas::is_in_place_list(keyword) => {
                *schema = json!({"not": {}});
            }
            _ => {}
        }
        let Value::Object(members) = schema else { return };
        members.entry(TOUCH).or_insert_with(|| Value::from(0));
        if let Some(Value::String(reference)) = members.get("$ref")
            && let Some(pointer) = reference.strip_prefix('#')
        {
            self.references.push(pointer.to_owned());
        }
        self.drop_patterns(members);
        subschemas::for_each_mut(members, &mut |keyword, inner| self.visit(keyword, inner));
    }

    fn drop_patterns(&mut self, members: &mut Map<String, Value>) {
        if let Some(Value::String(pattern)) = members.get("pattern")
            && !self.is_suitable(pattern)
        {
            members.remove("pattern");
        }
        let Some(Value::Object(by_pattern)) = members.get("patternProperties") else { return };
        if !by_pattern.keys().all(|pattern| self.is_suitable(pattern)) {
            // The others depend on the names that match.
            for keyword in ["patternProperties", "additionalProperties", "unevaluatedProperties"] {
                members.remove(keyword);
            }
        }
    }

    fn is_suitable(&mut self, pattern: &str) -> bool {
        if let Some(suitable) = self.patterns.get(pattern) {
            return *suitable;
        }
        let suitable = self.patterns.len() < MAX_PATTERNS
            && jsonschema::options()
                .with_pattern_options(pattern_options())
                .build(&json!({"pattern": pattern}))
                .is_ok();
        self.patterns.insert(pattern.to_owned(), suitable);
        suitable
    }
}
