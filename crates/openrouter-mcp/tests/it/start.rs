//! When the program refuses to start, and what it says.

use std::{
    fs::File,
    process::{Output, Stdio},
};

use rockbot_testkit::fixture::within_timeout;

use crate::program::{HttpProgram, program};
use crate::scripted::KEY;

async fn run(settings: &[(&str, &str)], arguments: &[&str]) -> Output {
    let running = program(settings).args(arguments).output();
    within_timeout("the end", running).await.unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn a_missing_key_is_told_with_the_way_to_set_it() {
    let output = run(&[("OPENROUTER_API_KEY", "")], &[]).await;
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("set OPENROUTER_API_KEY"), "{}", text(&output));
}

#[tokio::test]
async fn every_problem_is_told_at_once_and_the_key_is_in_none() {
    let settings = [
        ("ROCKBOT_OPENROUTER__BASE_URL", "http://example.com"),
        ("ROCKBOT_OPENROUTER__TIMEOUT", "0s"),
        ("ROCKBOT_SERVER__ADDRESS", "example.com"),
        ("ROCKBOT_SERVER__ALLOWED_ORIGINS", "[\"example.com\"]"),
    ];
    let output = run(&settings, &["--check-config"]).await;
    let told = text(&output);
    assert_eq!(output.status.code(), Some(64), "{told}");
    for key in ["openrouter.base_url", "openrouter.timeout", "server.address"] {
        assert!(told.contains(key), "{key}: {told}");
    }
    assert!(!told.contains(KEY), "{told}");
}

#[tokio::test]
async fn a_key_in_a_file_does_as_well_and_is_checked_without_asking_anybody() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{KEY}\n")).unwrap();
    let path = file.path().to_str().unwrap();
    let settings = [("OPENROUTER_API_KEY", ""), ("ROCKBOT_OPENROUTER__API_KEY_FILE", path)];
    let output = run(&settings, &["--check-config"]).await;
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn the_built_in_defaults_can_be_used_as_a_file() {
    let defaults = run(&[], &["--print-config"]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &defaults.stdout).unwrap();
    let path = file.path().to_str().unwrap();
    let output = run(&[], &["--config", path, "--check-config"]).await;
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn help_shows_how_to_give_the_key() {
    let output = run(&[], &["--help"]).await;
    let told = text(&output);
    assert!(told.contains("OPENROUTER_API_KEY") && told.contains("Examples:"), "{told}");
    assert!(!told.contains("amqp://"), "{told}");
}

#[tokio::test]
async fn a_taken_address_is_told() {
    let first = HttpProgram::start(&[]).await;
    let address = first.url.trim_start_matches("http://");
    let output = run(&[("ROCKBOT_SERVER__ADDRESS", address)], &[]).await;
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
    assert!(text(&output).contains(&format!("cannot listen on {address}")), "{}", text(&output));
}

#[tokio::test]
async fn help_that_cant_be_written_is_exit_code_74() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut program = program(&[]);
    program.arg("--help").stdout(full).stderr(Stdio::piped());
    let ending = program.spawn().unwrap().wait_with_output();
    let output = within_timeout("the end", ending).await.unwrap();
    assert_eq!(output.status.code(), Some(74), "{}", text(&output));
    assert!(text(&output).contains("cannot write the output"), "{}", text(&output));
}
