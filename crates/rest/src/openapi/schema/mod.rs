//! Translation of schemas to JSON Schema 2020-12, and their size with references unfolded.
//!
//! Each schema of the document that a reference leads to is translated once, when it is first needed.
//! A reference in a translated schema is the JSON pointer of its target in the document; what becomes of
//! it is decided when the schema of a tool is assembled.

mod properties;
mod size;
mod translated;
mod translation;

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

use serde_json::Value;

pub(super) use self::{size::Size, translated::Translated};
use super::references::{ReferenceError, Resolver};

/// Maximum nesting of subschemas with references unfolded. Tools accept 64.
pub(super) const MAX_NESTING: u32 = 56;
/// Maximum work of one import, in translated, measured and written subschemas.
const MAX_WORK: u64 = 100_000_000;

/// Reason why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SchemaProblem {
    #[error("its schema {0}")]
    Reference(#[from] ReferenceError),
    #[error("its schema nests too deeply")]
    TooNested,
    #[error("the document is too complex; include fewer operations")]
    TooMuchWork,
}

/// Translates the schemas of a document.
pub(super) struct Schemas<'a> {
    pub(super) resolver: Resolver<'a>,
    /// Keywords beside a reference apply, as in JSON Schema since 2019-09.
    has_siblings: bool,
    definitions: HashMap<String, Rc<Translated>>,
    sizes: HashMap<String, Size>,
    /// Pointers that are known not to lead back to themselves through combinators only.
    finite: BTreeSet<String>,
    work: u64,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(resolver: Resolver<'a>, has_siblings: bool) -> Self {
        Self {
            resolver,
            has_siblings,
            definitions: HashMap::new(),
            sizes: HashMap::new(),
            finite: BTreeSet::new(),
            work: MAX_WORK,
        }
    }

    /// Counts work.
    ///
    /// # Errors
    /// [`SchemaProblem::TooMuchWork`] when all work of the import is used up.
    pub(super) fn spend(&mut self, work: u64) -> Result<(), SchemaProblem> {
        self.work = self.work.checked_sub(work).ok_or(SchemaProblem::TooMuchWork)?;
        Ok(())
    }

    /// Translates a schema.
    ///
    /// # Errors
    /// See [`SchemaProblem`].
    pub(super) fn translate(&mut self, schema: &'a Value) -> Result<Translated, SchemaProblem> {
        translation::translate(self, schema)
    }

    /// Returns the translated target of a reference.
    ///
    /// # Errors
    /// See [`SchemaProblem`].
    pub(super) fn definition(&mut self, pointer: &str) -> Result<Rc<Translated>, SchemaProblem> {
        if let Some(known) = self.definitions.get(pointer) {
            return Ok(Rc::clone(known));
        }
        let translated = Rc::new(self.translate(self.resolver.at(pointer)?)?);
        self.definitions.insert(pointer.to_owned(), Rc::clone(&translated));
        Ok(translated)
    }
}
