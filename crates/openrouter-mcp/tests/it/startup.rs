//! Startup errors, `--help`, `--print-config` and `--check-config`.

use std::{
    fs::File,
    process::{Output, Stdio},
};

use rockbot_testkit::fixture::within_timeout;

use crate::program::{HttpProgram, program};
use crate::scripted::KEY;

async fn run(settings: &[(&str, &str)], arguments: &[&str]) -> Output {
    let running = program(settings).args(arguments).output();
    within_timeout("the exit", running).await.unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn missing_key_error_names_variable() {
    let output = run(&[("OPENROUTER_API_KEY", "")], &[]).await;
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("set OPENROUTER_API_KEY"), "{}", text(&output));
}

#[tokio::test]
async fn all_errors_are_reported_at_once_without_key() {
    let settings = [
        ("ROCKBOT_OPENROUTER__BASE_URL", "http://example.com"),
        ("ROCKBOT_OPENROUTER__TIMEOUT", "0s"),
        ("ROCKBOT_SERVER__ADDRESS", "example.com"),
        ("ROCKBOT_SERVER__ALLOWED_ORIGINS", "[\"example.com\"]"),
    ];
    let output = run(&settings, &["--check-config"]).await;
    let text = text(&output);
    assert_eq!(output.status.code(), Some(64), "{text}");
    for key in ["openrouter.base_url", "openrouter.timeout", "server.address"] {
        assert!(text.contains(key), "{key}: {text}");
    }
    assert!(!text.contains(KEY), "{text}");
}

#[tokio::test]
async fn key_file_is_accepted_without_network_access() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{KEY}\n")).unwrap();
    let path = file.path().to_str().unwrap();
    let settings = [("OPENROUTER_API_KEY", ""), ("ROCKBOT_OPENROUTER__API_KEY_FILE", path)];
    let output = run(&settings, &["--check-config"]).await;
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn printed_defaults_are_a_valid_file() {
    let defaults = run(&[], &["--print-config"]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &defaults.stdout).unwrap();
    let path = file.path().to_str().unwrap();
    let output = run(&[], &["--config", path, "--check-config"]).await;
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn help_names_key_variable() {
    let output = run(&[], &["--help"]).await;
    let text = text(&output);
    assert!(text.contains("OPENROUTER_API_KEY") && text.contains("Examples:"), "{text}");
    assert!(!text.contains("amqp://"), "{text}");
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let first = HttpProgram::start(&[]).await;
    let address = first.url.trim_start_matches("http://");
    let output = run(&[("ROCKBOT_SERVER__ADDRESS", address)], &[]).await;
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
    assert!(text(&output).contains(&format!("cannot listen on {address}")), "{}", text(&output));
}

#[tokio::test]
async fn unwritable_help_exits_with_74() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut program = program(&[]);
    program.arg("--help").stdout(full).stderr(Stdio::piped());
    let exit = program.spawn().unwrap().wait_with_output();
    let output = within_timeout("the exit", exit).await.unwrap();
    assert_eq!(output.status.code(), Some(74), "{}", text(&output));
    assert!(text(&output).contains("cannot write the output"), "{}", text(&output));
}
