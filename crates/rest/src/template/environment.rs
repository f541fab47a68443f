//! Variables of configured texts.

use std::cell::RefCell;

use rockbot_service::expand::{ExpandError, Piece, expand_except};

use super::error::TemplateError;

/// Prefix of the placeholders that calls fill in.
const PARAMETERS: &str = "parameters.";

/// The variables of one entry: where their values come from, and which of them were used.
pub(crate) struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Values of the variables, which are redacted in results.
    values: RefCell<Vec<String>>,
    /// Names of the variables that are not set and have no default.
    unset: Vec<String>,
}

impl<'a> Environment<'a> {
    /// Creates the environment of an entry from `lookup`, which returns the values of variables.
    pub(crate) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { lookup, values: RefCell::default(), unset: Vec::new() }
    }

    /// Expands a text; the placeholders of parameters are left, without their prefix. A text with an
    /// unset variable is empty, and the variable is reported by [`finish`](Self::finish), so that all
    /// texts of an entry are checked.
    pub(super) fn expand(&mut self, text: &str) -> Result<Vec<Piece>, TemplateError> {
        let lookup = |name: &str| {
            let value = (self.lookup)(name)?;
            self.values.borrow_mut().push(value.clone());
            Some(value)
        };
        match expand_except(text, |inside| inside.starts_with(PARAMETERS), &lookup) {
            Ok(mut pieces) => {
                for piece in &mut pieces {
                    if let Piece::Placeholder(inside) = piece {
                        inside.drain(..PARAMETERS.len());
                    }
                }
                Ok(pieces)
            }
            Err(ExpandError::Unset(name)) => {
                self.unset.push(name.chars().take(80).collect());
                Ok(Vec::new())
            }
            Err(error) => Err(TemplateError(error.to_string())),
        }
    }

    /// Returns the values of all variables that were expanded.
    ///
    /// # Errors
    /// When variables are not set.
    pub(crate) fn finish(mut self) -> Result<Vec<String>, TemplateError> {
        self.unset.sort();
        self.unset.dedup();
        match self.unset.as_slice() {
            [] => Ok(self.values.into_inner()),
            [name] => Err(TemplateError(ExpandError::Unset(name.clone()).to_string())),
            names => Err(TemplateError(format!(
                "environment variables {} are not set; set them, or write ${{NAME:-default}}",
                names.join(", ")
            ))),
        }
    }
}
