//! `rockbot script run`, on this machine.

use serde_json::json;

use crate::workshop::{Said, Workshop, assert_says};

#[test]
fn what_it_prints_goes_where_it_printed_it() {
    let workshop = Workshop::new();
    workshop.write("report.py", "import os, sys\nprint(os.environ['ROCKBOT_INPUT'].upper())\n");
    workshop.write("figures.csv", "a,b");
    let said = workshop.check(&["script", "run", "report.py", "--input", "figures.csv"], 0);
    assert_eq!(said.out, "A,B\n");
    assert_says(&said.err, &["exit code 0", "isolated by"]);

    workshop.write("windows.py", "\u{feff}print(1)\r\n");
    assert_eq!(workshop.check(&["script", "run", "windows.py"], 0).out, "1\n");

    workshop.write("broken.py", "print('so far')\nraise ValueError('no')\n");
    let said = workshop.check(&["script", "run", "broken.py"], 1);
    assert_eq!(said.out, "so far\n");
    assert_says(&said.err, &["ValueError: no", "exit code 1"]);
}

#[test]
fn a_machine_reads_how_it_ended() {
    let workshop = Workshop::new();
    workshop.write("exits.py", "import sys; sys.exit(3)");
    let said = workshop.check(&["--json", "script", "run", "exits.py"], 1).json();
    assert_eq!((&said["exitCode"], &said["ok"]), (&json!(3), &json!(false)));
    assert!(said["isolation"]["by"].is_string(), "{said}");
    workshop.write("spins.py", "while True: pass");
    let spins = ["--json", "script", "run", "spins.py", "--timeout", "1"];
    let said = workshop.check(&spins, 75).json();
    assert_eq!((&said["code"], &said["executed"]), (&json!("timeout"), &json!("yes")));
}

#[test]
fn what_can_not_be_run_is_told_before_anything_starts() {
    let workshop = Workshop::new();
    workshop.write("empty.py", "");
    workshop.check(&["script", "run", "empty.py"], 64);
    workshop.check(&["script", "run", "missing.py"], 64);
    workshop.write("fine.py", "print(1)");
    for package in ["x; curl", "--index-url=http://x", "git+https://x/y"] {
        let package = format!("--package={package}");
        let said = workshop.check(&["script", "run", "fine.py", &package], 64);
        assert_says(&said.err, &["is not a package"]);
    }
    workshop.check(&["script", "run", "fine.py", "--timeout", "301"], 64);
    workshop.write("huge.csv", &"x".repeat(600_000));
    let said = workshop.check(&["script", "run", "fine.py", "--input", "huge.csv"], 64);
    assert_says(&said.err, &["huge.csv", "limit"]);
    workshop.check(&["script", "run", "fine.py", "--runner", "bus"], 64);
}

#[test]
fn who_runs_it_is_what_the_settings_say_unless_the_command_does() {
    let workshop = Workshop::new();
    workshop.write("fine.py", "print(1)");
    let off = |arguments: &[&str]| {
        let mut command = workshop.std_command(arguments);
        Said::of(command.env("ROCKBOT_SCRIPTS__RUNNER", "off").output().unwrap())
    };
    let said = off(&["script", "run", "fine.py"]);
    said.assert_code(64, &["off"]);
    assert_says(&said.err, &["scripts are off", "--runner"]);
    off(&["script", "run", "fine.py", "--runner", "local"]).assert_code(0, &["local"]);
}

#[test]
fn an_input_that_no_variable_holds_is_told_when_the_script_fails() {
    let workshop = Workshop::new();
    workshop.write("reads.py", "import os; os.environ['ROCKBOT_INPUT']");
    workshop.write("large.csv", &"x".repeat(200_000));
    let said = workshop.check(&["script", "run", "reads.py", "--input", "large.csv"], 1);
    assert_says(&said.err, &["KeyError", "hint:", "ROCKBOT_INPUT_FILE"]);
}

#[test]
fn a_model_runs_one_like_any_tool() {
    let workshop = Workshop::new();
    let arguments = json!({"script": "print(6 * 7)"}).to_string();
    let said = workshop.check(&["tools", "call", "execute_python_script", &arguments], 0);
    assert_eq!(said.out, "42\n");
    let arguments = json!({"script": "1 / 0"}).to_string();
    let said = workshop.check(&["tools", "call", "execute_python_script", &arguments], 1);
    assert_says(&said.out, &["(exit code 1)", "ZeroDivisionError"]);
}
