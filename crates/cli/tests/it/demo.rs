//! `rockbot demo`.

use std::fs;

use crate::{
    pseudo_terminal::Terminal,
    sandbox::{Sandbox, assert_contains},
};

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
fn demo_calls_are_watched_on_the_in_memory_bus() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["demo", "--watch"], 0);
    let events: Vec<serde_json::Value> =
        output.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let replied: Vec<_> = events.iter().filter(|event| event["event"] == "replied").collect();
    let tools: Vec<_> = replied.iter().filter_map(|event| event["tool"].as_str()).collect();
    assert_eq!(tools, ["list_files", "search", "bash", "read_file"]);
    for event in replied {
        assert_eq!((&event["executed"], &event["state"]), (&"yes".into(), &"ok".into()));
        assert!(event["stages"]["queueMs"].is_u64(), "{event}");
    }
    assert!(events.iter().any(|event| event["event"] == "requested"), "{}", output.out);
    let left = fs::read_dir(sandbox.temporary()).expect("a folder").count();
    assert_eq!(left, 0, "temporary files stay");
}

#[test]
fn watched_demo_shows_rates_and_tools_until_q() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(sandbox.std_command(&["demo", "--watch"]));
    for text in ["0 live", "p50", "read_file"] {
        terminal.wait_for(text);
    }
    terminal.type_text("t");
    terminal.wait_for("TOOL");
    terminal.type_text("q");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
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
