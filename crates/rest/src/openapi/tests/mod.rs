//! Tests of whole imports.

mod documents;
mod hostile;
mod matrix;
mod mutations;
mod security;

use serde_json::{Map, Value, json};

use super::{Document, ImportOptions, Imported, Operation, import};
use crate::request::{BuildRequest, InvalidArguments, RequestParts};

/// Imports a document whose only server is `https://api.test/v1`, unless it has others.
#[track_caller]
pub(super) fn imported(document: &Value, options: &ImportOptions) -> Imported {
    import(&Document::from_value(document.clone()).expect("a document"), options)
}

/// Imports the only operation of a document.
#[track_caller]
pub(super) fn only(document: &Value) -> Operation {
    let options = ImportOptions { deprecated: true, ..ImportOptions::default() };
    let mut imported = imported(document, &options);
    assert!(imported.skipped.is_empty(), "{:?}", imported.skipped);
    assert_eq!(imported.operations.len(), 1);
    imported.operations.remove(0)
}

/// Returns the reason why the only operation of a document is skipped.
#[track_caller]
pub(super) fn reason(document: &Value, options: &ImportOptions) -> String {
    let imported = imported(document, options);
    assert!(imported.operations.is_empty(), "{:?}", imported.operations);
    let [skipped] = imported.skipped.as_slice() else { panic!("{:?}", imported.skipped) };
    skipped.reason.clone()
}

/// Returns a document of version 3.1 with one operation.
pub(super) fn document(method: &str, path: &str, operation: Value) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Test", "version": "1"},
        "servers": [{"url": "https://api.test/v1/"}],
        "paths": {path: {method: operation}},
    })
}

#[track_caller]
pub(super) fn request(operation: &Operation, arguments: Value) -> RequestParts {
    try_request(operation, arguments).expect("a request")
}

pub(super) fn try_request(
    operation: &Operation,
    arguments: Value,
) -> Result<RequestParts, InvalidArguments> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    operation.request(&arguments)
}

/// Returns the schema of an argument.
pub(super) fn argument(operation: &Operation, name: &str) -> Value {
    operation.registration(None).parameters["properties"][name].clone()
}

pub(super) fn object(pairs: &[(&str, Value)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Value::Object(pairs.collect::<Map<_, _>>())
}
