//! Schemas of arguments and of structured results, and validation against them.
//!
//! A schema may come from an untrusted server, and its evaluation can take time that grows exponentially
//! with its size. Two limits apply:
//!
//! - A schema that expands to too many subschemas, or nests too deeply, is rejected when its tool is
//!   registered.
//! - Every access of the evaluator to the arguments is a step. An evaluation ends when it has used up its
//!   steps, its time or its stack, so recursive schemas are limited as well. A small number of steps runs
//!   in place; longer evaluations run on blocking threads, of which few are used.

mod evaluate;
mod metered;
mod prepare;
mod repair;
mod shape;
mod subschemas;

use std::{collections::BTreeSet, fmt};

use jsonschema::Validator;
use serde_json::Value;

pub(crate) use self::evaluate::accept;
pub use self::evaluate::output_violation;
use self::metered::Metered;
pub use self::repair::repair;

/// Reason why arguments cannot be validated against a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is not a schema for an object.
    #[error("its type must be \"object\"")]
    NotObject,
    /// It expands to too many subschemas.
    #[error(
        "its schema expands to more than {} subschemas; use fewer alternatives or references",
        shape::MAX_EXPANDED
    )]
    TooLarge,
    /// It nests too deeply.
    #[error("its schema nests deeper than {} levels with its references", shape::MAX_NESTING)]
    TooNested,
    /// A reference leads to another document.
    #[error("its schema refers to {reference:?}; copy the definition into \"$defs\"")]
    External {
        /// The reference, truncated.
        reference: String,
    },
    /// A reference leads to no schema.
    #[error("its schema refers to {reference:?}, which does not exist in it")]
    Unresolved {
        /// The reference, truncated.
        reference: String,
    },
    /// It is not valid JSON Schema.
    #[error("its schema is not valid: {reason}")]
    Invalid {
        /// Cause.
        reason: String,
    },
}

/// Longest cause in an error, in characters.
const MAX_REASON_CHARS: usize = 200;

/// A compiled schema of arguments, or of structured results.
pub struct ArgumentSchema {
    validator: Validator<Metered>,
    patterns: u64,
    /// Names that the arguments must have.
    required: BTreeSet<String>,
}

impl ArgumentSchema {
    /// Compiles the schema of an object.
    ///
    /// # Errors
    /// See [`SchemaError`].
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if schema.get("type").is_some_and(|kind| kind != "object") || !schema.is_object() {
            return Err(SchemaError::NotObject);
        }
        shape::check(schema)?;
        let prepared = prepare::prepare(schema);
        let validator = jsonschema::options_for::<Metered>()
            .with_pattern_options(prepare::pattern_options())
            // Formats are hints for the model; the tool itself checks them.
            .should_validate_formats(false)
            .build(&prepared.schema)
            .map_err(|error| SchemaError::Invalid {
                reason: error.masked().to_string().chars().take(MAX_REASON_CHARS).collect(),
            })?;
        let required = schema["required"].as_array().into_iter().flatten();
        let required = required.filter_map(|name| name.as_str().map(ToOwned::to_owned)).collect();
        Ok(Self { validator, patterns: prepared.patterns, required })
    }
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
