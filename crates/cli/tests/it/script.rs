//! `rockbot script run`, on this machine.

use std::process::Stdio;

use serde_json::json;

use crate::sandbox::{CommandOutput, Sandbox, assert_contains};

#[test]
fn script_output_is_passed_through() {
    let sandbox = Sandbox::new();
    sandbox.write("report.py", "import os, sys\nprint(os.environ['ROCKBOT_INPUT'].upper())\n");
    sandbox.write("figures.csv", "a,b");
    let output = sandbox.check(&["script", "run", "report.py", "--input", "figures.csv"], 0);
    assert_eq!(output.out, "A,B\n");
    assert_contains(&output.err, &["exit code 0", "isolated by"]);

    sandbox.write("windows.py", "\u{feff}print(1)\r\n");
    assert_eq!(sandbox.check(&["script", "run", "windows.py"], 0).out, "1\n");

    sandbox.write("broken.py", "print('so far')\nraise ValueError('no')\n");
    let output = sandbox.check(&["script", "run", "broken.py"], 1);
    assert_eq!(output.out, "so far\n");
    assert_contains(&output.err, &["ValueError: no", "exit code 1"]);
}

#[test]
fn json_output_describes_outcome() {
    let sandbox = Sandbox::new();
    sandbox.write("exits.py", "import sys; sys.exit(3)");
    let output = sandbox.check(&["--json", "script", "run", "exits.py"], 1).json();
    assert_eq!((&output["exitCode"], &output["ok"]), (&json!(3), &json!(false)));
    assert!(output["isolation"]["by"].is_string(), "{output}");
    sandbox.write("spins.py", "while True: pass");
    let spins = ["--json", "script", "run", "spins.py", "--timeout", "1"];
    let output = sandbox.check(&spins, 75).json();
    assert_eq!((&output["code"], &output["executed"]), (&json!("timeout"), &json!("yes")));
}

#[test]
fn output_is_shown_while_script_runs() {
    let sandbox = Sandbox::new();
    sandbox.write("slow.py", "import time\nprint('begun', flush=True)\ntime.sleep(60)\n");
    let slow = ["script", "run", "slow.py", "--timeout", "3"];
    let output = sandbox.check(&slow, 75);
    assert_eq!(output.out, "");
    let lines: Vec<_> = output.err.lines().collect();
    assert_eq!(lines[0], "begun");
    assert_contains(&output.err, &["error: timeout\nstdout until then:\nbegun (timeout"]);
    let output = sandbox.check(&["--json", "script", "run", "slow.py", "--timeout", "1"], 75);
    assert_eq!(output.json()["message"], "timeout\nstdout until then:\nbegun");
}

#[test]
fn closed_output_keeps_exit_code() {
    let sandbox = Sandbox::new();
    sandbox.write("fails.py", "print('x' * 500_000)\nraise ValueError('no')\n");
    sandbox.write("works.py", "print('x' * 500_000)\n");
    for (file, code) in [("fails.py", 1), ("works.py", 0)] {
        for arguments in [&["script", "run", file][..], &["--json", "script", "run", file]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = sandbox.std_command(arguments);
            let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
            assert!(!stderr.contains("panicked"), "{stderr}");
        }
    }
}

#[test]
fn invalid_script_is_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write("empty.py", "");
    sandbox.check(&["script", "run", "empty.py"], 64);
    sandbox.check(&["script", "run", "missing.py"], 64);
    sandbox.write("fine.py", "print(1)");
    for package in ["x; curl", "--index-url=http://x", "git+https://x/y"] {
        let package = format!("--package={package}");
        let output = sandbox.check(&["script", "run", "fine.py", &package], 64);
        assert_contains(&output.err, &["is not a package"]);
    }
    sandbox.check(&["script", "run", "fine.py", "--timeout", "301"], 64);
    sandbox.write("huge.csv", &"x".repeat(600_000));
    let output = sandbox.check(&["script", "run", "fine.py", "--input", "huge.csv"], 64);
    assert_contains(&output.err, &["huge.csv", "limit"]);
    sandbox.check(&["script", "run", "fine.py", "--runner", "bus"], 64);
}

#[test]
fn runner_option_overrides_settings() {
    let sandbox = Sandbox::new();
    sandbox.write("fine.py", "print(1)");
    let off = |arguments: &[&str]| {
        let mut command = sandbox.std_command(arguments);
        CommandOutput::new(command.env("ROCKBOT_SCRIPTS__RUNNER", "off").output().unwrap())
    };
    let output = off(&["script", "run", "fine.py"]);
    output.assert_code(64, &["off"]);
    assert_contains(&output.err, &["scripts are off", "--runner"]);
    off(&["script", "run", "fine.py", "--runner", "local"]).assert_code(0, &["local"]);
}

#[test]
fn failed_script_with_large_input_gets_hint() {
    let sandbox = Sandbox::new();
    sandbox.write("reads.py", "import os; os.environ['ROCKBOT_INPUT']");
    sandbox.write("large.csv", &"x".repeat(200_000));
    let output = sandbox.check(&["script", "run", "reads.py", "--input", "large.csv"], 1);
    assert_contains(&output.err, &["KeyError", "hint:", "ROCKBOT_INPUT_FILE"]);
}

#[test]
fn script_tool_can_be_called() {
    let sandbox = Sandbox::new();
    let arguments = json!({"script": "print(6 * 7)"}).to_string();
    let output = sandbox.check(&["tools", "call", "execute_python_script", &arguments], 0);
    assert_eq!(output.out, "42\n");
    let arguments = json!({"script": "1 / 0"}).to_string();
    let output = sandbox.check(&["tools", "call", "execute_python_script", &arguments], 1);
    assert_contains(&output.out, &["(exit code 1)", "ZeroDivisionError"]);
}
