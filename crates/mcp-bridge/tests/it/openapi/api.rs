//! An API and its document.

use std::path::Path;

use axum::{
    Json, Router,
    extract::{Path as PathValues, Query},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use rockbot_mcp_bridge::BridgeOptions;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::remote::loopback;

/// The token that the API expects.
pub(super) const TOKEN: &str = "token-of-the-api-0123456789";

/// An API at a port of this machine, until it is dropped.
pub(super) struct Api {
    pub(super) url: String,
    _task: AbortOnDropHandle<()>,
}

impl Api {
    pub(super) async fn start() -> Self {
        let item = get(
            async |PathValues(id): PathValues<String>,
                   Query(query): Query<Map<String, Value>>,
                   headers: HeaderMap| {
                let authorization = headers.get(header::AUTHORIZATION);
                let authorization = authorization.and_then(|value| value.to_str().ok());
                let is_authorized = authorization == Some(format!("Bearer {TOKEN}").as_str());
                Json(json!({"id": id, "query": query, "isAuthorized": is_authorized,
                    "authorization": authorization}))
            },
        );
        let create = post(async |Json(body): Json<Value>| (StatusCode::CREATED, Json(body)));
        let busy = get(async || {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")]).into_response()
        });
        let routes =
            Router::new().route("/items/{id}", item).route("/items", create).route("/busy", busy);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url_of(&listener);
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, _task: AbortOnDropHandle::new(task) }
    }
}

pub(super) fn url_of(listener: &TcpListener) -> String {
    format!("http://{}", listener.local_addr().unwrap())
}

/// Returns options that allow APIs on this machine.
pub(super) fn options() -> BridgeOptions {
    // In a process, `main` does this.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    BridgeOptions { dial: loopback(), ..BridgeOptions::default() }
}

/// Returns a document with these paths.
pub(super) fn document(url: &str, paths: &Value) -> Value {
    json!({
        "openapi": "3.0.3",
        "info": {"title": "Item API", "version": "1", "description": "Keeps items. Nothing else."},
        "servers": [{"url": url}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}],
        "paths": paths,
    })
}

/// Returns the paths of [`Api`].
pub(super) fn paths() -> Value {
    let text = json!({"type": "string"});
    let id = json!({"name": "id", "in": "path", "required": true, "schema": text});
    let filter = json!({"name": "filter", "in": "query", "schema": text});
    let item = json!({"type": "object", "properties": {"name": text}, "required": ["name"]});
    let content = json!({"application/json": {"schema": item}});
    json!({
        "/items/{id}": {"get": {"operationId": "items/get", "summary": "Returns an item.",
            "parameters": [id, filter]}},
        "/items": {"post": {"operationId": "items/create", "summary": "Creates an item.",
            "requestBody": {"required": true, "content": content}}},
        "/busy": {"get": {"operationId": "items/busy"}},
        "/denied": {"get": {"operationId": "items/denied"}},
        "/unsafe": {"get": {"operationId": "items/unsafe", "security": [{"other": []}]}},
    })
}

/// Writes a file in one step, as editors and Kubernetes do.
pub(super) fn write(path: &Path, content: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Returns the entry of a server whose token these origins may receive.
pub(super) fn entry(document: &Path, origins: &[&str]) -> Value {
    json!({"openapi": document, "auth": {"key": {"token": TOKEN}}, "credentialOrigins": origins})
}
