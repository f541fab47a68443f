//! What the command says about itself.

use crate::workshop::{Workshop, assert_says};

#[test]
fn help_has_examples_and_the_exit_codes() {
    let workshop = Workshop::new();
    for arguments in [&["--help"][..], &["-h"], &["help"]] {
        let said = workshop.check(arguments, 0);
        assert_says(&said.out, &["Examples:", "rockbot demo", "tools call", "Exit codes:", "75"]);
        assert_eq!(said.err, "");
    }
    let said = workshop.check(&["tools", "call", "--help"], 0);
    assert_says(&said.out, &["Examples:", "@arguments.json", "bash -"]);
}

#[test]
fn the_version_is_printed() {
    let said = Workshop::new().check(&["--version"], 0);
    assert_eq!(said.out, format!("rockbot {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn without_a_command_the_help_is_shown_as_a_mistake() {
    let said = Workshop::new().check(&[], 64);
    assert_says(&said.err, &["Usage:", "demo", "chat"]);
    let said = Workshop::new().check(&["--json"], 64);
    assert_says(&said.err, &["Usage:"]);
}

#[test]
fn every_shell_has_its_completions() {
    let workshop = Workshop::new();
    for shell in ["bash", "zsh", "fish"] {
        let said = workshop.check(&["completions", shell], 0);
        assert_says(&said.out, &["rockbot", "doctor", "check-config"]);
    }
    workshop.check(&["completions", "abacus"], 64);
}
