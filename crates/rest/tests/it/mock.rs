//! Requests of imported operations against a mock server that validates them.

use std::{path::Path, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_egress::DialPolicy;
use rockbot_rest::{ApiClient, ApiEntry, ApiTool, ApiTools};
use rockbot_testkit::openapi_mock::{OpenApiMock, example_document};
use rockbot_tools::ToolContext;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::arguments::Variant;

/// Time for what takes milliseconds.
const LONG: Duration = Duration::from_secs(30);

/// Documents without unusual styles of paths and forms, at which the mock ends with an exception.
const DOCUMENTS: [&str; 10] = [
    "2.0/json/petstore.json",
    "3.0/json/petstore.json",
    "3.0/json/polymorphism.json",
    "3.0/json/readme-legacy.json",
    "3.0/json/request-examples.json",
    "3.0/json/security.json",
    "3.0/json/star-trek.json",
    "3.1/json/readme.json",
    "3.1/json/security.json",
    "3.1/json/train-travel.json",
];

/// Writes a document without the responses of its operations but one, into a file. The mock then accepts a
/// request with 200 and rejects it with 401, 415 or 422, and has no other responses to choose from. A document
/// of version 2.0 that names no media type gets JSON: the mock accepts no bodies without one.
fn with_one_response(name: &str, file: &Path) -> Value {
    let text = std::fs::read(example_document(name)).unwrap();
    let mut document: Value = serde_json::from_slice(&text).unwrap();
    for (_, path_item) in document["paths"].as_object_mut().unwrap() {
        for (_, operation) in path_item.as_object_mut().unwrap() {
            if let Some(responses) = operation.get_mut("responses") {
                *responses = json!({"200": {"description": "accepted"}});
            }
        }
    }
    if document["swagger"] == "2.0" && document.get("consumes").is_none() {
        document["consumes"] = json!(["application/json"]);
    }
    std::fs::write(file, document.to_string()).unwrap();
    document
}

/// Returns an entry for a document whose server is the mock, with credentials for all of its schemes.
fn entry(path: &Path, document: &Value, url: &str) -> Value {
    let schemes = &document["components"]["securitySchemes"];
    let schemes = schemes.as_object().or_else(|| document["securityDefinitions"].as_object());
    let names = schemes.into_iter().flatten().map(|(name, _)| name.clone());
    let given =
        json!({"value": "a-value", "token": "a-token", "user": "me", "password": "a-password"});
    let auth: Map<String, Value> = names.map(|name| (name, given.clone())).collect();
    json!({"spec": path, "baseUrl": url, "deprecated": true, "auth": auth})
}

/// Calls a tool with several choices of arguments until one is accepted.
///
/// # Errors
/// The last rejected arguments with the reason.
async fn call(tool: &ApiTool) -> Result<(), String> {
    let mut rejected = String::new();
    for variant in Variant::ALL {
        let (session, agent) = (SessionId::generate(), AgentName::new("assistant").unwrap());
        let context = ToolContext::new(tool.name(), session, agent);
        let arguments = variant.arguments(&tool.tool().registration().parameters);
        let called = tool.tool().call(arguments.clone(), &context);
        let reason = match timeout(LONG, called).await.expect("the call ends") {
            Ok(result) if !result.is_error => return Ok(()),
            Ok(result) => result.to_text().into_owned(),
            Err(failure) => failure.to_string(),
        };
        rejected = format!("{arguments}: {reason}").chars().take(1_000).collect();
    }
    Err(rejected)
}

#[tokio::test]
async fn mock_server_accepts_generated_arguments() {
    let dial = DialPolicy {
        allow_plain_http: true,
        allow_private: vec!["127.0.0.0/8".parse().unwrap()],
        ..DialPolicy::default()
    };
    let client = ApiClient::new(Arc::new(dial)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("openapi.json");
    let (mut operations, mut rejected) = (0, Vec::new());
    for name in DOCUMENTS {
        let document = with_one_response(name, &path);
        let mock = OpenApiMock::start(&path);
        let entry = entry(&path, &document, mock.url());
        let entry = ApiEntry::new(&entry, Path::new("/"), &|_| None).unwrap();
        let api = ApiTools::read(name, &entry, &client).await.unwrap();
        operations += api.tools().len() + api.skipped().len();
        let skipped = api.skipped().iter();
        rejected.extend(skipped.map(|one| format!("{name} {}: {}", one.operation, one.reason)));
        for tool in api.tools() {
            if let Err(reason) = call(tool).await {
                rejected.push(format!("{name} {}: {reason}", tool.name()));
            }
        }
    }
    assert!(operations > 300, "{operations} operations");
    let report = rejected.join("\n");
    assert!(rejected.len() * 50 <= operations, "{} of {operations}:\n{report}", rejected.len());
}
