//! Tests against answers in the shape of the API; their content is invented.

mod limits;
mod pages;
mod requests;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use super::{Github, GithubDocument, GithubFailure, GithubSection, route};
use crate::api::{
    ApiRequest, ApiResponse,
    recorded::{Recorded, response},
};

/// Creates a reader with a token.
fn github(transport: Arc<Recorded>) -> Github {
    with_section(json!({"token": "ghp_secret"}), transport)
}

fn with_section(section: Value, transport: Arc<Recorded>) -> Github {
    let section: GithubSection = serde_json::from_value(section).expect("a section");
    Github::from_section(&section, |_| None, transport).expect("a reader")
}

/// Reads the page of a URL.
async fn read(github: &Github, url: &str) -> Result<GithubDocument, GithubFailure> {
    let page = route(&Url::parse(url).expect("a URL")).expect("a page of the API");
    github.read(&page, Instant::now() + Duration::from_secs(30)).await
}

/// Returns path and query of a request, and its media type.
fn requested(request: &ApiRequest) -> (String, String) {
    let query = request.url.query().map_or_else(String::new, |query| format!("?{query}"));
    let media = request.headers["accept"].to_str().expect("text");
    let media = media.trim_start_matches("application/vnd.github").trim_start_matches('.');
    (format!("{}{query}", request.url.path()), media.to_owned())
}

/// Creates a response of JSON.
fn json_response(body: &Value) -> ApiResponse {
    response(200, &[("content-type", "application/json; charset=utf-8")], body)
}

/// Creates a response of another media type.
fn text_response(body: &str) -> ApiResponse {
    response(200, &[("content-type", "application/vnd.github.raw; charset=utf-8")], body)
}

fn not_found() -> ApiResponse {
    response(404, &[], json!({"message": "Not Found", "status": "404"}))
}
