//! OAuth tokens of remote servers, from a local authorization server.

mod authorization_server;
mod bridge;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use reqwest::redirect;
use rockbot_mcp_bridge::oauth::{Grant, Login, OAuthError, OAuthSettings, OAuthTokens};
use rockbot_mcp_bridge::transport::{
    ConnectError, FailureClass, RemoteServer, TokenSource, call_failure_class, failure_class, http,
};
use rockbot_testkit::fixture::{TEST_TIMEOUT, within_timeout};
use secrecy::ExposeSecret;
use tempfile::TempDir;

use crate::remote::{Session, call, loopback, open};
use authorization_server::{AuthServer, CLIENT, SECRET};

fn settings(auth_server: &AuthServer, folder: &Path, grant: Grant) -> OAuthSettings {
    OAuthSettings {
        resource: auth_server.mcp(),
        grant,
        scopes: Vec::new(),
        policy: Arc::new(loopback()),
        folder: folder.join("tokens"),
    }
}

fn machine_grant() -> Grant {
    Grant::Machine { client_id: CLIENT.into(), client_secret: SECRET.to_owned().into() }
}

fn user_grant() -> Grant {
    Grant::User { client_id: None, client_secret: None }
}

/// Returns the server with the token source of a freshly started process.
fn server(settings: &OAuthSettings) -> RemoteServer {
    let mut server = RemoteServer::new(settings.resource.clone(), settings.policy.clone());
    server.tokens = Some(Arc::new(OAuthTokens::new(settings.clone())));
    server
}

async fn session(settings: &OAuthSettings) -> Session {
    open(http::connect(&server(settings)).await.unwrap()).await.unwrap()
}

/// Opens a session and returns the class of its failure.
async fn connect_failure(settings: &OAuthSettings) -> FailureClass {
    let transport = http::connect(&server(settings)).await.unwrap();
    let session = Box::pin(open(transport)).await;
    failure_class(&session.expect_err("no session"))
}

/// Opens the URL like a browser, following redirects, and returns the page.
#[expect(clippy::disallowed_methods, reason = "it stands for a browser")]
async fn browse(url: &str) -> String {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let browser = reqwest::Client::builder().redirect(redirect::Policy::limited(3)).build();
    let page = browser.unwrap().get(url).send().await.unwrap();
    page.text().await.unwrap()
}

async fn log_in(settings: &OAuthSettings) {
    finish(within_timeout("the login", Login::start(settings, None)).await.unwrap()).await;
}

async fn finish(login: Login) {
    let page = tokio::spawn({
        let url = login.url().to_owned();
        async move { browse(&url).await }
    });
    within_timeout("the redirect", login.finish(TEST_TIMEOUT)).await.unwrap();
    assert!(page.await.unwrap().contains("close this window"));
}

#[tokio::test]
async fn client_credentials_token_is_stored_privately() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), machine_grant());
    let session = session(&settings).await;
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    assert_eq!(auth_server.request_count("client_credentials"), 1);

    let files: Vec<_> = settings.folder.read_dir().unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(settings.folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(std::fs::read_to_string(files[0].path()).unwrap().contains("token-1"));
    assert!(!format!("{settings:?} {:?}", server(&settings)).contains(SECRET));
}

#[tokio::test]
async fn stored_token_is_reused_after_restart() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), machine_grant());
    for _ in 0..3 {
        session(&settings).await;
    }
    assert_eq!(auth_server.request_count("client_credentials"), 1);
}

#[tokio::test]
async fn expiring_token_is_replaced_before_use() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    auth_server.state().token_lifetime = 1;
    let settings = settings(&auth_server, folder.path(), machine_grant());
    let session = session(&settings).await;
    let before = auth_server.request_count("client_credentials");
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    assert!(auth_server.request_count("client_credentials") > before);
}

#[tokio::test]
async fn rejected_token_is_replaced_once_for_concurrent_calls() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let session = session(&settings(&auth_server, folder.path(), machine_grant())).await;
    auth_server.revoke_access_tokens();
    let calls = (0..8).map(|_| call(session.peer(), "good"));
    within_timeout("the calls", try_join_all(calls)).await.unwrap();
    assert_eq!(auth_server.request_count("client_credentials"), 2);
}

#[tokio::test]
async fn wrong_client_secret_is_unauthorized() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let grant =
        Grant::Machine { client_id: CLIENT.into(), client_secret: "wrong".to_owned().into() };
    let class = connect_failure(&settings(&auth_server, folder.path(), grant)).await;
    assert_eq!(class, FailureClass::Unauthorized);
}

#[tokio::test]
async fn tokens_are_refreshed_after_one_login() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    assert_eq!(connect_failure(&settings).await, FailureClass::Unauthorized);
    log_in(&settings).await;

    let session = session(&settings).await;
    assert_eq!(auth_server.request_count("refresh_token"), 0);
    auth_server.revoke_access_tokens();
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    assert_eq!(auth_server.request_count("refresh_token"), 1);

    // The refresh token was rotated, and the new one is in the file.
    auth_server.revoke_access_tokens();
    let restarted = server(&settings);
    open(http::connect(&restarted).await.unwrap()).await.unwrap();
    assert_eq!(auth_server.request_count("refresh_token"), 2);
}

#[tokio::test]
async fn invalid_refresh_token_requires_another_login() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    log_in(&settings).await;
    let session = session(&settings).await;
    auth_server.revoke_access_tokens();
    auth_server.revoke_refresh_tokens();
    let error =
        within_timeout("the call", call(session.peer(), "good")).await.expect_err("no valid token");
    assert_eq!(call_failure_class(&error), Some(FailureClass::Unauthorized));
    log_in(&settings).await;
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
}

#[tokio::test]
async fn login_in_another_process_replaces_the_client() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    log_in(&settings).await;
    let session = session(&settings).await;
    auth_server.revoke_access_tokens();
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    log_in(&settings).await;
    auth_server.revoke_access_tokens();
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    let refreshed = auth_server.state().token_requests.last().unwrap().clone();
    assert_eq!(refreshed["client_id"], "registered-2");
}

#[tokio::test]
async fn login_for_more_scopes_keeps_granted_ones() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    let login = Login::start(&settings, Some("Bearer scope=\"read\"")).await.unwrap();
    finish(login).await;
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    let login = Login::start(&settings, Some(challenge)).await.unwrap();
    assert!(login.url().contains("scope=read+write"), "{}", login.url());
    finish(login).await;
    let repeated = Login::start(&settings, Some(challenge)).await;
    assert!(matches!(repeated.err(), Some(OAuthError::ScopesAlreadyGranted)));
}

#[tokio::test]
async fn refusal_reason_is_sanitized() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let mut settings = settings(&auth_server, folder.path(), user_grant());
    settings.scopes = vec!["everything".to_owned()];
    let login = Login::start(&settings, None).await.unwrap();
    let url = login.url().to_owned();
    tokio::spawn(async move { browse(&url).await });
    match within_timeout("the redirect", login.finish(TEST_TIMEOUT)).await {
        Err(OAuthError::Refused(reason)) => assert_eq!(reason, "access_denied31m"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_matching_redirect_completes_login() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    let login = Login::start(&settings, None).await.unwrap();
    let url = reqwest::Url::parse(login.url()).unwrap();
    let redirect =
        url.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
    let waiting = tokio::spawn(login.finish(TEST_TIMEOUT));
    for forged in ["?code=x&state=forged", "?error=access_denied", "/else?code=x", ""] {
        assert_eq!(
            within_timeout(forged, browse(&format!("{redirect}{forged}"))).await,
            "Not found."
        );
    }
    browse(url.as_str()).await;
    within_timeout("the redirect", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn login_times_out_without_redirect() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    let login = Login::start(&settings, None).await.unwrap();
    let outcome = within_timeout("the timeout", login.finish(Duration::from_millis(50))).await;
    assert!(matches!(outcome, Err(OAuthError::TimedOut)), "{outcome:?}");
}

#[tokio::test]
async fn client_credentials_need_no_login() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let login = Login::start(&settings(&auth_server, folder.path(), machine_grant()), None).await;
    assert!(matches!(login.err(), Some(OAuthError::NotInteractive)));
}

#[tokio::test]
async fn private_authorization_server_is_not_dialed() {
    for advertised in ["http://10.0.0.1", "http://169.254.169.254", "https://localhost.invalid"] {
        let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
        auth_server.state().advertised = Some(advertised.to_owned());
        let settings = settings(&auth_server, folder.path(), machine_grant());
        assert_eq!(
            within_timeout(advertised, connect_failure(&settings)).await,
            FailureClass::Unauthorized
        );
        assert!(auth_server.state().token_requests.is_empty(), "{advertised}");
    }
}

#[tokio::test]
async fn token_is_used_for_its_own_server_only() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let own = settings(&auth_server, folder.path(), user_grant());
    log_in(&own).await;
    let other = OAuthSettings {
        resource: reqwest::Url::parse("http://127.0.0.1:9/mcp").unwrap(),
        ..own.clone()
    };
    assert!(OAuthTokens::new(other).token().await.unwrap().is_none());
    let token = OAuthTokens::new(own).token().await.unwrap().unwrap();
    assert_eq!(token.expose_secret(), "token-1");
}

#[tokio::test]
async fn token_file_readable_by_others_is_rejected() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let settings = settings(&auth_server, folder.path(), user_grant());
    log_in(&settings).await;
    let file = settings.folder.read_dir().unwrap().next().unwrap().unwrap().path();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = OAuthTokens::new(settings).token().await;
    assert!(matches!(refused, Err(ConnectError::Token(_))), "{refused:?}");
}
