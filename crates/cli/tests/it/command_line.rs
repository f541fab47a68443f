//! Help, version and completions.

use crate::sandbox::{Sandbox, assert_contains};

#[test]
fn help_shows_examples_and_exit_codes() {
    let sandbox = Sandbox::new();
    for arguments in [&["--help"][..], &["-h"], &["help"]] {
        let output = sandbox.check(arguments, 0);
        assert_contains(
            &output.out,
            &["Examples:", "rockbot demo", "tools call", "Exit codes:", "75"],
        );
        assert_eq!(output.err, "");
    }
    let output = sandbox.check(&["tools", "call", "--help"], 0);
    assert_contains(&output.out, &["Examples:", "@arguments.json", "bash -"]);
}

#[test]
fn version_is_printed() {
    let output = Sandbox::new().check(&["--version"], 0);
    assert_eq!(output.out, format!("rockbot {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn missing_command_prints_help_and_fails() {
    let output = Sandbox::new().check(&[], 64);
    assert_contains(&output.err, &["Usage:", "demo", "chat"]);
    let output = Sandbox::new().check(&["--json"], 64);
    assert_contains(&output.err, &["Usage:"]);
}

#[test]
fn completions_exist_for_supported_shells() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = sandbox.check(&["completions", shell], 0);
        assert_contains(&output.out, &["rockbot", "doctor", "check-config"]);
    }
    sandbox.check(&["completions", "abacus"], 64);
}
