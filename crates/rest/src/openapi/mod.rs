//! Import of `OpenAPI` documents: one tool for each operation.
//!
//! [`Document`] reads Swagger 2.0 and `OpenAPI` 3.0, 3.1 and 3.2 as JSON or YAML. [`import`] selects
//! operations and returns each as an [`Operation`], which holds the definition of a tool and builds its
//! requests, or as a [`SkippedOperation`] with a reason. Nothing here does I/O.
//!
//! A document is untrusted. Its size, nesting and references are bounded, the schema of a tool is
//! bounded by its size with all references expanded, and an import by the amount of its work. The
//! origin, the number of path segments and the names of headers of a request are fixed when the document
//! is imported and do not depend on the arguments.

mod arguments;
mod assemble;
mod body;
mod body_content;
mod document;
mod encoding;
mod gather;
mod import;
mod json_shape;
mod keywords;
mod limits;
mod operation;
mod options;
mod parameters;
mod path;
mod recipients;
mod references;
mod responses;
mod schema;
mod security;
mod select;
mod servers;
mod style;
mod swagger;
#[cfg(test)]
mod tests;

pub(crate) use self::gather::NAME_PREFIX;
pub use self::{
    document::{Document, DocumentError, Version},
    gather::{MAX_OPERATIONS, SkippedOperation},
    import::{Imported, import},
    limits::ImportLimits,
    operation::Operation,
    options::{ImportOptions, OperationFilter, OperationOverride, SchemeCredentials},
};
