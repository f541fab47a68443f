//! Translation of schemas to JSON Schema 2020-12, and their size with references expanded.
//!
//! Each schema of the document that a reference targets is translated once, on first use. A reference in a
//! translated schema is the JSON pointer of its target in the document; `assemble` either inlines the target
//! or turns the reference into one to `$defs`.

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

/// Maximum nesting of subschemas with references expanded. Tools accept 64.
pub(super) const MAX_NESTING: u32 = 56;
/// Maximum work of one import: number of subschemas that are translated, measured and written.
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
    /// `true` if keywords next to `$ref` apply, as in JSON Schema since 2019-09.
    applies_ref_siblings: bool,
    definitions: HashMap<String, Rc<Translated>>,
    sizes: HashMap<String, Size>,
    /// Pointers known to reach no cycle that consists only of combinators such as `allOf`.
    finite: BTreeSet<String>,
    remaining_work: u64,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(resolver: Resolver<'a>, applies_ref_siblings: bool) -> Self {
        Self {
            resolver,
            applies_ref_siblings,
            definitions: HashMap::new(),
            sizes: HashMap::new(),
            finite: BTreeSet::new(),
            remaining_work: MAX_WORK,
        }
    }

    /// Subtracts `work` from the remaining work of the import.
    ///
    /// # Errors
    /// [`SchemaProblem::TooMuchWork`] when the import exceeds [`MAX_WORK`].
    pub(super) fn spend(&mut self, work: u64) -> Result<(), SchemaProblem> {
        let remaining = self.remaining_work.checked_sub(work);
        self.remaining_work = remaining.ok_or(SchemaProblem::TooMuchWork)?;
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
