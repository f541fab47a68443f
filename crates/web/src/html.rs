//! HTML as text for a model.
//!
//! 1. [`markup`] bounds the markup before it is parsed; [`stripped`] reads the text of a page that exceeds
//!    the bounds;
//! 2. [`parse`] builds the tree within limits;
//! 3. [`hidden`] removes what people do not see, and [`links`] makes links absolute;
//! 4. [`extract`] chooses the main content among [`candidates`];
//! 5. [`markdown`] converts it.

mod candidates;
mod extract;
mod hidden;
#[cfg(test)]
mod hidden_ways;
mod json_ld;
mod links;
mod markdown;
mod markup;
mod parse;
mod stripped;
mod style;
mod words;

pub use self::extract::{Extract, Extractor, HtmlPage, Part, TwoCandidates};
pub(crate) use self::stripped::stripped;
