//! Tokens of remote servers, from a small server of ours that gives them.

mod authority;
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
use authority::{Authority, CLIENT, SECRET};

fn settings(authority: &Authority, folder: &Path, grant: Grant) -> OAuthSettings {
    OAuthSettings {
        resource: authority.mcp(),
        grant,
        scopes: Vec::new(),
        policy: Arc::new(loopback()),
        folder: folder.join("tokens"),
    }
}

fn machine() -> Grant {
    Grant::Machine { client_id: CLIENT.into(), client_secret: SECRET.to_owned().into() }
}

fn person() -> Grant {
    Grant::User { client_id: None, client_secret: None }
}

/// The server, with tokens of a process that has just started.
fn server(settings: &OAuthSettings) -> RemoteServer {
    let mut server = RemoteServer::new(settings.resource.clone(), settings.policy.clone());
    server.tokens = Some(Arc::new(OAuthTokens::new(settings.clone())));
    server
}

async fn session(settings: &OAuthSettings) -> Session {
    open(http::connect(&server(settings)).await.unwrap()).await.unwrap()
}

/// Why there is no session.
async fn failed(settings: &OAuthSettings) -> FailureClass {
    let transport = http::connect(&server(settings)).await.unwrap();
    let failed = Box::pin(open(transport)).await;
    failure_class(&failed.expect_err("no session"))
}

/// What a person does: opens the URL, and lets the browser go where it is sent.
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
    within_timeout("the return", login.finish(TEST_TIMEOUT)).await.unwrap();
    assert!(page.await.unwrap().contains("close this window"));
}

#[tokio::test]
async fn a_machine_gets_its_token_by_itself_and_keeps_it_to_itself() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), machine());
    let session = session(&settings).await;
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    assert_eq!(authority.grants("client_credentials"), 1);

    let files: Vec<_> = settings.folder.read_dir().unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(settings.folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(std::fs::read_to_string(files[0].path()).unwrap().contains("token-1"));
    assert!(!format!("{settings:?} {:?}", server(&settings)).contains(SECRET));
}

#[tokio::test]
async fn a_token_outlives_the_process_and_is_not_asked_for_again() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), machine());
    for _ in 0..3 {
        session(&settings).await;
    }
    assert_eq!(authority.grants("client_credentials"), 1);
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_replaced_before_it_is_sent() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    authority.books().lasts = 1;
    let settings = settings(&authority, folder.path(), machine());
    let session = session(&settings).await;
    let before = authority.grants("client_credentials");
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    assert!(authority.grants("client_credentials") > before);
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once_for_all_calls() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let session = session(&settings(&authority, folder.path(), machine())).await;
    authority.revoke();
    let calls = (0..8).map(|_| call(session.peer(), "good"));
    within_timeout("the calls", try_join_all(calls)).await.unwrap();
    assert_eq!(authority.grants("client_credentials"), 2);
}

#[tokio::test]
async fn a_machine_with_a_wrong_secret_is_unauthorised() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let grant =
        Grant::Machine { client_id: CLIENT.into(), client_secret: "wrong".to_owned().into() };
    let class = failed(&settings(&authority, folder.path(), grant)).await;
    assert_eq!(class, FailureClass::Unauthorized);
}

#[tokio::test]
async fn a_person_logs_in_once_and_the_process_refreshes() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    assert_eq!(failed(&settings).await, FailureClass::Unauthorized);
    log_in(&settings).await;

    let session = session(&settings).await;
    assert_eq!(authority.grants("refresh_token"), 0);
    authority.revoke();
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    assert_eq!(authority.grants("refresh_token"), 1);

    // The refresh token was replaced too: the new one is in the file.
    authority.revoke();
    let later = server(&settings);
    open(http::connect(&later).await.unwrap()).await.unwrap();
    assert_eq!(authority.grants("refresh_token"), 2);
}

#[tokio::test]
async fn what_can_not_be_refreshed_wants_the_person_again() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    log_in(&settings).await;
    let session = session(&settings).await;
    authority.revoke();
    authority.forget_refresh_tokens();
    let error =
        within_timeout("the call", call(session.peer(), "good")).await.expect_err("no token");
    assert_eq!(call_failure_class(&error), Some(FailureClass::Unauthorized));
    log_in(&settings).await;
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
}

#[tokio::test]
async fn a_login_in_another_process_takes_over_with_the_client_that_it_registered() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    log_in(&settings).await;
    let session = session(&settings).await;
    authority.revoke();
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    log_in(&settings).await;
    authority.revoke();
    assert_eq!(within_timeout("the call", call(session.peer(), "good")).await.unwrap(), "good");
    let refreshed = authority.books().asked.last().unwrap().clone();
    assert_eq!(refreshed["client_id"], "registered-2");
}

#[tokio::test]
async fn a_login_for_more_keeps_what_was_agreed_before_and_is_not_repeated_in_vain() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    let login = Login::start(&settings, Some("Bearer scope=\"read\"")).await.unwrap();
    finish(login).await;
    let more = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    let login = Login::start(&settings, Some(more)).await.unwrap();
    assert!(login.url().contains("scope=read+write"), "{}", login.url());
    finish(login).await;
    let again = Login::start(&settings, Some(more)).await;
    assert!(matches!(again.err(), Some(OAuthError::ScopesAlreadyGranted)));
}

#[tokio::test]
async fn a_refusal_is_told_in_plain_text() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let mut settings = settings(&authority, folder.path(), person());
    settings.scopes = vec!["everything".to_owned()];
    let login = Login::start(&settings, None).await.unwrap();
    let url = login.url().to_owned();
    tokio::spawn(async move { browse(&url).await });
    match within_timeout("the return", login.finish(TEST_TIMEOUT)).await {
        Err(OAuthError::Refused(why)) => assert_eq!(why, "access_denied31m"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_the_browser_of_this_login_ends_it() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    let login = Login::start(&settings, None).await.unwrap();
    let url = reqwest::Url::parse(login.url()).unwrap();
    let back = url.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
    let waiting = tokio::spawn(login.finish(TEST_TIMEOUT));
    for forged in ["?code=x&state=forged", "?error=access_denied", "/else?code=x", ""] {
        assert_eq!(within_timeout(forged, browse(&format!("{back}{forged}"))).await, "Not found.");
    }
    browse(url.as_str()).await;
    within_timeout("the return", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn nobody_is_waited_for_without_end() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    let login = Login::start(&settings, None).await.unwrap();
    let gone = within_timeout("the end", login.finish(Duration::from_millis(50))).await;
    assert!(matches!(gone, Err(OAuthError::TimedOut)), "{gone:?}");
}

#[tokio::test]
async fn a_machine_does_not_log_in() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let login = Login::start(&settings(&authority, folder.path(), machine()), None).await;
    assert!(matches!(login.err(), Some(OAuthError::NotInteractive)));
}

#[tokio::test]
async fn a_server_can_not_send_us_inside_to_be_authorised() {
    for elsewhere in ["http://10.0.0.1", "http://169.254.169.254", "https://localhost.invalid"] {
        let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
        authority.books().elsewhere = Some(elsewhere.to_owned());
        let settings = settings(&authority, folder.path(), machine());
        assert_eq!(within_timeout(elsewhere, failed(&settings)).await, FailureClass::Unauthorized);
        assert!(authority.books().asked.is_empty(), "{elsewhere}");
    }
}

#[tokio::test]
async fn a_token_is_found_for_its_own_server_only() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let mine = settings(&authority, folder.path(), person());
    log_in(&mine).await;
    let other = OAuthSettings {
        resource: reqwest::Url::parse("http://127.0.0.1:9/mcp").unwrap(),
        ..mine.clone()
    };
    assert!(OAuthTokens::new(other).token().await.unwrap().is_none());
    let token = OAuthTokens::new(mine).token().await.unwrap().unwrap();
    assert_eq!(token.expose_secret(), "token-1");
}

#[tokio::test]
async fn a_file_that_others_may_read_is_not_used() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let settings = settings(&authority, folder.path(), person());
    log_in(&settings).await;
    let file = settings.folder.read_dir().unwrap().next().unwrap().unwrap().path();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = OAuthTokens::new(settings).token().await;
    assert!(matches!(refused, Err(ConnectError::Token(_))), "{refused:?}");
}
