//! Size of schemas with their references expanded.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    MAX_NESTING, SchemaProblem, Schemas,
    translated::{Reference, Translated},
};

/// Size of a schema with its references expanded. Recursion counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Size {
    pub(in super::super) nodes: u64,
    pub(in super::super) bytes: u64,
    nesting: u32,
    /// A reference reaches a cycle that consists only of combinators such as `allOf`: validation would not end.
    pub(in super::super) is_endless: bool,
    pub(in super::super) is_recursive: bool,
}

impl Schemas<'_> {
    /// Returns all definitions that a schema references, directly or not, by pointer; `None` when they
    /// exceed `max_bytes` together.
    ///
    /// # Errors
    /// See [`SchemaProblem`].
    pub(in super::super) fn closure(
        &mut self,
        schema: &Translated,
        max_bytes: u64,
    ) -> Result<Option<BTreeMap<String, Rc<Translated>>>, SchemaProblem> {
        let mut found = BTreeMap::new();
        let mut bytes = schema.bytes;
        let mut pending: Vec<String> =
            schema.references.iter().map(|reference| reference.pointer.clone()).collect();
        while let Some(pointer) = pending.pop() {
            if found.contains_key(&pointer) {
                continue;
            }
            let definition = self.definition(&pointer)?;
            self.spend(1 + definition.references.len() as u64)?;
            pending.extend(definition.references.iter().map(|inner| inner.pointer.clone()));
            bytes += definition.bytes;
            if bytes > max_bytes {
                return Ok(None);
            }
            found.insert(pointer, definition);
        }
        Ok(Some(found))
    }

    /// Returns the size of a schema with its references expanded.
    ///
    /// # Errors
    /// See [`SchemaProblem`].
    pub(in super::super) fn size(&mut self, schema: &Translated) -> Result<Size, SchemaProblem> {
        self.expanded_size(schema, &mut Vec::new(), 0)
    }

    fn expanded_size(
        &mut self,
        schema: &Translated,
        open: &mut Vec<String>,
        outer: u32,
    ) -> Result<Size, SchemaProblem> {
        self.spend(1 + schema.references.len() as u64)?;
        let mut size = Size {
            nodes: schema.nodes,
            bytes: schema.bytes,
            nesting: schema.nesting,
            is_recursive: false,
            is_endless: false,
        };
        for Reference { pointer, nesting, .. } in &schema.references {
            if open.contains(pointer) {
                size.is_recursive = true;
                size.nodes = size.nodes.saturating_add(1);
                continue;
            }
            let inner = match self.sizes.get(pointer) {
                Some(known) => *known,
                None if outer + nesting > MAX_NESTING => return Err(SchemaProblem::TooNested),
                None => {
                    let definition = self.definition(pointer)?;
                    open.push(pointer.clone());
                    let mut inner = self.expanded_size(&definition, open, outer + nesting + 1)?;
                    open.pop();
                    inner.is_endless |= self.is_endless(pointer, &mut Vec::new())?;
                    self.sizes.insert(pointer.clone(), inner);
                    inner
                }
            };
            size.nodes = size.nodes.saturating_add(inner.nodes);
            size.bytes = size.bytes.saturating_add(inner.bytes);
            size.nesting = size.nesting.max(nesting + inner.nesting + 1);
            size.is_recursive |= inner.is_recursive;
            size.is_endless |= inner.is_endless;
        }
        if outer + size.nesting > MAX_NESTING {
            return Err(SchemaProblem::TooNested);
        }
        Ok(size)
    }

    /// Returns `true` if a reference reaches a cycle that consists only of combinators such as `allOf`, without
    /// a property or an item.
    fn is_endless(&mut self, pointer: &str, open: &mut Vec<String>) -> Result<bool, SchemaProblem> {
        if self.finite.contains(pointer) {
            return Ok(false);
        }
        if open.iter().any(|open| open == pointer) || open.len() > MAX_NESTING as usize {
            return Ok(true);
        }
        let definition = self.definition(pointer)?;
        self.spend(1 + definition.references.len() as u64)?;
        open.push(pointer.to_owned());
        for reference in definition.references.iter().filter(|reference| reference.in_place) {
            if self.is_endless(&reference.pointer, open)? {
                return Ok(true);
            }
        }
        self.finite.extend(open.pop());
        Ok(false)
    }
}
