//! A server of tools that wants tokens, and the server that gives them, on one address.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::remote::hostile::Hostile;
use crate::remote::http::serve;

pub(super) const CLIENT: &str = "robot";
pub(super) const SECRET: &str = "open sesame";

#[derive(Clone, Default)]
pub(super) struct Authority(Arc<Mutex<Books>>);

/// What it has given, and was asked.
#[derive(Default)]
pub(super) struct Books {
    pub(super) url: String,
    /// In place of its own address in the metadata of the server of tools.
    pub(super) elsewhere: Option<String>,
    /// How many seconds a token lasts.
    pub(super) lasts: u64,
    pub(super) valid: HashSet<String>,
    /// By whom each is used.
    refresh: HashMap<String, String>,
    registered: usize,
    codes: HashMap<String, HashMap<String, String>>,
    /// The forms that tokens were asked for with.
    pub(super) asked: Vec<HashMap<String, String>>,
    given: usize,
}

impl Authority {
    pub(super) async fn start() -> Self {
        let authority = Self::default();
        let router = Router::new()
            .route("/mcp", post(tools))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(authority.clone());
        let url = serve(router).await;
        authority.books().url = url;
        authority.books().lasts = 3600;
        authority
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap()
    }

    pub(super) fn mcp(&self) -> Url {
        Url::parse(&format!("{}/mcp", self.books().url)).unwrap()
    }

    /// Takes back every token, but not what they are refreshed with.
    pub(super) fn revoke(&self) {
        self.books().valid.clear();
    }

    pub(super) fn forget_refresh_tokens(&self) {
        self.books().refresh.clear();
    }

    pub(super) fn grants(&self, grant: &str) -> usize {
        self.books().asked.iter().filter(|form| form["grant_type"] == grant).count()
    }
}

async fn tools(State(authority): State<Authority>, headers: HeaderMap, body: Bytes) -> Response {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !authority.books().valid.contains(token) {
        let metadata =
            format!("{}/.well-known/oauth-protected-resource/mcp", authority.books().url);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"tools\"");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    match Hostile::new().answer(&message).await {
        Some(answer) => ([("content-type", "application/json")], answer).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

async fn resource(State(authority): State<Authority>) -> Json<Value> {
    let books = authority.books();
    let server = books.elsewhere.as_ref().unwrap_or(&books.url);
    Json(json!({"resource": format!("{}/mcp", books.url), "authorization_servers": [server]}))
}

async fn metadata(State(authority): State<Authority>) -> Json<Value> {
    let url = &authority.books().url;
    Json(json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
    }))
}

async fn register(State(authority): State<Authority>, Json(mut client): Json<Value>) -> Response {
    let mut books = authority.books();
    books.registered += 1;
    client["client_id"] = json!(format!("registered-{}", books.registered));
    (StatusCode::CREATED, Json(client)).into_response()
}

/// The person agrees at once, except to a scope that nobody should have.
async fn authorize(State(authority): State<Authority>, RawQuery(query): RawQuery) -> Response {
    let asked = form(&query.unwrap());
    assert_eq!(asked["resource"], authority.mcp().as_str());
    assert_eq!(asked["code_challenge_method"], "S256");
    let mut back = Url::parse(&asked["redirect_uri"]).unwrap();
    back.query_pairs_mut().append_pair("state", &asked["state"]);
    if asked.get("scope").is_some_and(|scope| scope.contains("everything")) {
        back.query_pairs_mut().append_pair("error", "access_denied\u{1b}[31m");
    } else {
        back.query_pairs_mut().append_pair("code", "once");
        authority.books().codes.insert("once".into(), asked);
    }
    (StatusCode::FOUND, [("location", back.to_string())]).into_response()
}

async fn token(State(authority): State<Authority>, body: Bytes) -> Response {
    let asked = form(std::str::from_utf8(&body).unwrap());
    assert_eq!(asked["resource"], authority.mcp().as_str(), "for whom the token is");
    let mut books = authority.books();
    let books = &mut *books;
    let good = match asked["grant_type"].as_str() {
        "client_credentials" => asked["client_id"] == CLIENT && asked["client_secret"] == SECRET,
        "authorization_code" => books.codes.remove(&asked["code"]).is_some_and(|code| {
            let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(&asked["code_verifier"]));
            code["code_challenge"] == proof && code["redirect_uri"] == asked["redirect_uri"]
        }),
        "refresh_token" => {
            books.refresh.remove(&asked["refresh_token"]).as_ref() == asked.get("client_id")
        }
        other => panic!("{other}"),
    };
    books.asked.push(asked.clone());
    if !good {
        let error = Json(json!({"error": "invalid_grant"}));
        return (StatusCode::BAD_REQUEST, error).into_response();
    }
    books.given += 1;
    let token = format!("token-{}", books.given);
    books.valid.insert(token.clone());
    let mut answer =
        json!({"access_token": token, "token_type": "Bearer", "expires_in": books.lasts});
    if asked["grant_type"] != "client_credentials" {
        let refresh = format!("refresh-{}", books.given);
        books.refresh.insert(refresh.clone(), asked["client_id"].clone());
        answer["refresh_token"] = json!(refresh);
    }
    Json(answer).into_response()
}

fn form(text: &str) -> HashMap<String, String> {
    let url = Url::parse(&format!("http://form/?{text}")).unwrap();
    url.query_pairs().into_owned().collect()
}
