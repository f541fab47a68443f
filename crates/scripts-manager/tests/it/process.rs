//! The program itself.

use std::process::{Command, Output};

fn run(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockbot-scripts-manager"));
    command.arg("--check-config").env_clear().env("ROCKBOT_STORE__URL", "memory:");
    command.envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn its_defaults_can_be_used() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_operator_is_told_what_is_wrong() {
    let output = run(&[("ROCKBOT_SCRIPTS__CPU", "fast"), ("ROCKBOT_SCRIPTS__DISK", "1Gi")]);
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for words in ["scripts.cpu: \"fast\"", "scripts.disk: is in memory"] {
        assert!(said.contains(words), "{said}");
    }
}
