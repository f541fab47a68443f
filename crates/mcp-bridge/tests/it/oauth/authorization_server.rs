//! An MCP server that requires tokens and its authorization server, on one address.

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

use crate::remote::hostile::HostileServer;
use crate::remote::http::serve;

pub(super) const CLIENT: &str = "robot";
pub(super) const SECRET: &str = "open sesame";

#[derive(Clone, Default)]
pub(super) struct AuthServer(Arc<Mutex<AuthState>>);

/// Issued tokens, and received requests.
#[derive(Default)]
pub(super) struct AuthState {
    pub(super) url: String,
    /// The authorization server in the MCP server's metadata, instead of this one.
    pub(super) advertised: Option<String>,
    /// The lifetime of new tokens, in seconds.
    pub(super) token_lifetime: u64,
    pub(super) valid_tokens: HashSet<String>,
    /// The client ids of refresh tokens.
    refresh_tokens: HashMap<String, String>,
    registrations: usize,
    codes: HashMap<String, HashMap<String, String>>,
    /// The forms of all token requests.
    pub(super) token_requests: Vec<HashMap<String, String>>,
    issued: usize,
}

impl AuthServer {
    pub(super) async fn start() -> Self {
        let auth_server = Self::default();
        let router = Router::new()
            .route("/mcp", post(mcp))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(auth_server.clone());
        let url = serve(router).await;
        auth_server.state().url = url;
        auth_server.state().token_lifetime = 3600;
        auth_server
    }

    pub(super) fn state(&self) -> MutexGuard<'_, AuthState> {
        self.0.lock().unwrap()
    }

    pub(super) fn mcp(&self) -> Url {
        Url::parse(&format!("{}/mcp", self.state().url)).unwrap()
    }

    /// Revokes all access tokens, but no refresh tokens.
    pub(super) fn revoke_access_tokens(&self) {
        self.state().valid_tokens.clear();
    }

    pub(super) fn revoke_refresh_tokens(&self) {
        self.state().refresh_tokens.clear();
    }

    /// Returns the number of token requests with this grant type.
    pub(super) fn request_count(&self, grant: &str) -> usize {
        self.state().token_requests.iter().filter(|form| form["grant_type"] == grant).count()
    }
}

async fn mcp(State(auth_server): State<AuthServer>, headers: HeaderMap, body: Bytes) -> Response {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !auth_server.state().valid_tokens.contains(token) {
        let metadata =
            format!("{}/.well-known/oauth-protected-resource/mcp", auth_server.state().url);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"tools\"");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    match HostileServer::new().reply(&message).await {
        Some(reply) => ([("content-type", "application/json")], reply).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

async fn resource(State(auth_server): State<AuthServer>) -> Json<Value> {
    let state = auth_server.state();
    let server = state.advertised.as_ref().unwrap_or(&state.url);
    Json(json!({"resource": format!("{}/mcp", state.url), "authorization_servers": [server]}))
}

async fn metadata(State(auth_server): State<AuthServer>) -> Json<Value> {
    let url = &auth_server.state().url;
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

async fn register(
    State(auth_server): State<AuthServer>,
    Json(mut client): Json<Value>,
) -> Response {
    let mut state = auth_server.state();
    state.registrations += 1;
    client["client_id"] = json!(format!("registered-{}", state.registrations));
    (StatusCode::CREATED, Json(client)).into_response()
}

/// The user consents at once, except to the scope `everything`.
async fn authorize(State(auth_server): State<AuthServer>, RawQuery(query): RawQuery) -> Response {
    let request = parse_form(&query.unwrap());
    assert_eq!(request["resource"], auth_server.mcp().as_str());
    assert_eq!(request["code_challenge_method"], "S256");
    let mut redirect = Url::parse(&request["redirect_uri"]).unwrap();
    redirect.query_pairs_mut().append_pair("state", &request["state"]);
    if request.get("scope").is_some_and(|scope| scope.contains("everything")) {
        redirect.query_pairs_mut().append_pair("error", "access_denied\u{1b}[31m");
    } else {
        redirect.query_pairs_mut().append_pair("code", "once");
        auth_server.state().codes.insert("once".into(), request);
    }
    (StatusCode::FOUND, [("location", redirect.to_string())]).into_response()
}

async fn token(State(auth_server): State<AuthServer>, body: Bytes) -> Response {
    let form = parse_form(std::str::from_utf8(&body).unwrap());
    assert_eq!(form["resource"], auth_server.mcp().as_str(), "the token is for this resource");
    let mut state = auth_server.state();
    let state = &mut *state;
    let is_valid = match form["grant_type"].as_str() {
        "client_credentials" => form["client_id"] == CLIENT && form["client_secret"] == SECRET,
        "authorization_code" => state.codes.remove(&form["code"]).is_some_and(|code| {
            let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
            code["code_challenge"] == proof && code["redirect_uri"] == form["redirect_uri"]
        }),
        "refresh_token" => {
            state.refresh_tokens.remove(&form["refresh_token"]).as_ref() == form.get("client_id")
        }
        other => panic!("{other}"),
    };
    state.token_requests.push(form.clone());
    if !is_valid {
        let error = Json(json!({"error": "invalid_grant"}));
        return (StatusCode::BAD_REQUEST, error).into_response();
    }
    state.issued += 1;
    let token = format!("token-{}", state.issued);
    state.valid_tokens.insert(token.clone());
    let mut response =
        json!({"access_token": token, "token_type": "Bearer", "expires_in": state.token_lifetime});
    if form["grant_type"] != "client_credentials" {
        let refresh = format!("refresh-{}", state.issued);
        state.refresh_tokens.insert(refresh.clone(), form["client_id"].clone());
        response["refresh_token"] = json!(refresh);
    }
    Json(response).into_response()
}

fn parse_form(text: &str) -> HashMap<String, String> {
    let url = Url::parse(&format!("http://form/?{text}")).unwrap();
    url.query_pairs().into_owned().collect()
}
