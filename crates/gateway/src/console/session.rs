//! Sessions of browsers, and what the present identity may do.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Bytes,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::error;

use crate::{
    clock::now_ms,
    face::{Access, Rate, Route, RouteLimits},
    guard::{AuditAction, ClientAddress, Guard, Refusal, audit, audit_login},
    identity::{FaceName, Identity, Right},
    parts::GatewayParts,
};

/// Largest body of a login, in bytes.
const LOGIN_BYTES: usize = 1024;

#[derive(Debug, Deserialize)]
struct Login {
    code: String,
}

pub(super) fn routes(guard: &Arc<Guard>, parts: &GatewayParts) -> Vec<Route> {
    let limits =
        RouteLimits { body_bytes: LOGIN_BYTES, rate: Rate::Logins, ..RouteLimits::default() };
    let log_in = {
        let guard = guard.clone();
        async move |Extension(from): Extension<ClientAddress>, body: Bytes| {
            log_in(&guard, from, &body)
        }
    };
    let log_out = {
        let guard = guard.clone();
        async move |Extension(identity): Extension<Identity>, headers: HeaderMap| {
            audit(&identity, AuditAction::Logout, "", "ok");
            (StatusCode::NO_CONTENT, [(header::SET_COOKIE, guard.log_out(&headers))])
        }
    };
    let parts = parts.clone();
    let me = async move |Extension(identity): Extension<Identity>| Json(me(&identity, &parts));
    vec![
        Route::post("/api/v1/session", Access::Public, log_in).with_limits(limits),
        Route::delete("/api/v1/session", Access::SignedIn, log_out),
        Route::get("/api/v1/me", Access::SignedIn, me),
    ]
}

fn log_in(guard: &Guard, ClientAddress(from): ClientAddress, body: &Bytes) -> Response {
    let login = serde_json::from_slice::<Login>(body).ok();
    match login.map_or(Ok(None), |Login { code }| guard.log_in(&code)) {
        Ok(Some(cookie)) => {
            audit_login(from, "ok");
            (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
        }
        Ok(None) => {
            audit_login(from, "refused");
            Refusal::InvalidCode.into_response(Some(FaceName::Console))
        }
        Err(error) => {
            error!(%error, "login failed");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// Returns the identity, its rights, and which parts of the console have what they need.
fn me(identity: &Identity, parts: &GatewayParts) -> Value {
    let part = |is_available: bool, key: &str| {
        if is_available {
            json!({"available": true})
        } else {
            json!({"available": false, "missing": key})
        }
    };
    json!({
        "subject": identity.subject,
        "name": identity.subject,
        "rights": Right::ALL.into_iter().filter(|right| identity.has(*right)).collect::<Vec<_>>(),
        "parts": {
            "talk": part(true, ""),
            "schedules": part(true, ""),
            "tasks": part(true, ""),
            "watch": part(parts.watch.is_some(), "gateway.watch.url"),
            "letters": part(parts.letters.is_some(), "gateway.letters.url"),
            "calls": part(parts.tool_calls.is_some(), "gateway.call_tools"),
        },
        "version": env!("CARGO_PKG_VERSION"),
        "serverTimeMs": now_ms(),
    })
}
