//! `rockbot demo`.

use std::fs;

use crate::sandbox::{Sandbox, assert_contains};

#[test]
fn demo_shows_every_call() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["demo"], 0);
    for tool in ["list_files", "search", "bash", "read_file"] {
        assert_contains(&output.out, &[&format!("→ {tool} ")]);
        let returned = output.out.lines().find(|line| line.contains(&format!("← {tool} ")));
        let returned = returned.unwrap_or_else(|| panic!("no result of {tool}:\n{}", output.out));
        assert_contains(returned, &["ran on tool-handler/", " B"]);
        assert!(returned.contains(" ms,") || returned.contains(" µs,"), "no time: {returned}");
    }
    assert_contains(
        &output.out,
        &[
            // Results of the tools in the final answer.
            "bus.md:1: # The bus",
            "The agent touches nothing outside itself.",
            "4 tool calls crossed the bus.",
            // Next steps.
            "OPENAI_API_KEY=",
            "OPENROUTER_API_KEY=",
            "OPENAI_BASE_URL=",
            "cargo xtask local-model",
        ],
    );
    assert_eq!(output.err, "");
}

#[test]
fn team_demo_continues_in_another_process_and_shows_spending() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["demo", "--team"], 0);
    let (first, second) = output.out.split_once(" was killed (SIGKILL)").expect("a kill");
    assert_contains(
        first,
        &[
            // The calls of the batch.
            "→ list_files ",
            "← read_file ran on tool-handler/",
            "→ spawn_subagent ",
            "] reading todo.txt",
            // Results of two sub-agents, with those of their tools.
            "] completed: Word counts: ",
            "] completed: Lines about the bus: bus.md:1: # The bus",
        ],
    );
    assert_contains(
        second,
        &[
            "→ spawn_wisps ",
            "2 wisp(s) completed (2 succeeded, 0 failed,",
            "They agree: both speak of one bus.",
            "] completed: Open work: ",
            "All three parts are done",
            "continues the turn, as number 2",
            // The request that the killed process was waiting for counts.
            "answer after 3 model calls: Open work: ",
        ],
    );
    assert!(!first.contains("Open work:"), "{}", output.out);
    assert_eq!(second.matches("2 model calls, ").count(), 2, "{}", output.out);
    assert_eq!(output.err, "");
    let left = fs::read_dir(sandbox.temporary()).expect("a folder").count();
    assert_eq!(left, 0, "temporary files stay");
}

#[test]
fn demo_removes_its_files() {
    let sandbox = Sandbox::new();
    sandbox.check(&["demo"], 0);
    let left = fs::read_dir(sandbox.temporary()).expect("a folder").count();
    assert_eq!(left, 0, "temporary files stay");
    assert_eq!(sandbox.names_in_root(), Vec::<String>::new());
}

#[test]
fn demo_ignores_configured_broker_and_model() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["demo"]);
    command.env("ROCKBOT_BUS__URL", "amqp://user:wrong@127.0.0.1:9/%2f");
    command.env("OPENAI_API_KEY", "sk-not-a-key").env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let output = crate::sandbox::CommandOutput::new(command.output().expect("it runs"));
    output.assert_code(0, &["demo"]);
    assert_contains(&output.out, &["4 tool calls crossed the bus."]);
}
