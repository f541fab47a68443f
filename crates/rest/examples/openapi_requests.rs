//! Prints a request of each operation of the `OpenAPI` documents below a folder, a line of JSON each:
//! `cargo run -p rockbot-rest --example openapi_requests -- DIR [EVERY]`
//!
//! `EVERY` reads each `EVERY`th document only. The arguments are generated from the schema of the tool. The
//! lines are compared with the requests of another client by `xtask/peers/openapi_requests.mjs`.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "the program reports to a terminal")]

#[path = "../tests/it/arguments.rs"]
mod arguments;
mod corpus;

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rockbot_rest::{
    BuildRequest, InvalidArguments, Part, RequestBody, RequestParts,
    openapi::{Document, Operation, import},
};
use serde_json::{Value, json};

use self::{
    arguments::Variant,
    corpus::{Corpus, options},
};

fn main() -> std::io::Result<()> {
    let corpus = Corpus::from_arguments()?;
    for file in &corpus.files {
        let text = fs::read_to_string(file)?;
        if let Ok(document) = text.parse::<Document>() {
            for operation in import(&document, &options(&text, &document)).operations {
                if let Some(line) = line(file, &operation) {
                    println!("{line}");
                }
            }
        }
    }
    Ok(())
}

/// Returns a request with the most arguments that can be sent.
fn line(file: &Path, operation: &Operation) -> Option<Value> {
    let schema = operation.registration(None).parameters;
    let variants = Variant::ALL.into_iter();
    let (arguments, parts) = variants
        .map(|variant| variant.arguments(&schema))
        .find_map(|arguments| Some((arguments.clone(), request(operation, arguments).ok()?)))?;
    Some(json!({
        "file": file, "method": operation.method().as_str(), "path": operation.path(),
        "arguments": arguments, "request": described(&parts),
    }))
}

fn request(operation: &Operation, arguments: Value) -> Result<RequestParts, InvalidArguments> {
    let Value::Object(arguments) = arguments else { unreachable!("arguments are an object") };
    operation.request(&arguments)
}

fn described(parts: &RequestParts) -> Value {
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.to_string(), Value::from(String::from_utf8_lossy(value.as_bytes())))
    });
    let (content_type, body) = match &parts.body {
        RequestBody::Empty => (Value::Null, Value::Null),
        RequestBody::Bytes { content_type, bytes } => {
            let content_type = content_type.to_str().expect("ASCII");
            (content_type.into(), content(content_type, bytes))
        }
        RequestBody::Multipart(fields) => {
            ("multipart/form-data".into(), fields.iter().map(field).collect())
        }
    };
    json!({
        "url": parts.url.as_str(), "headers": Value::Object(headers.collect()),
        "contentType": content_type, "body": body,
    })
}

/// Returns text as it is, and other content in base64.
fn content(content_type: &str, bytes: &[u8]) -> Value {
    let is_text =
        ["json", "urlencoded", "xml", "text/"].iter().any(|one| content_type.contains(one));
    match std::str::from_utf8(bytes) {
        Ok(text) if is_text => text.into(),
        _ => json!({"base64": STANDARD.encode(bytes)}),
    }
}

fn field(part: &Part) -> Value {
    json!([part.name, String::from_utf8_lossy(&part.bytes)])
}
