//! `rockbot demo`: the first minute.

use std::fs;

use crate::workshop::{Workshop, assert_says};

#[test]
fn the_demo_needs_nothing_and_shows_every_call_cross_the_bus() {
    let workshop = Workshop::new();
    let said = workshop.check(&["demo"], 0);
    for tool in ["list_files", "search", "bash", "read_file"] {
        assert_says(&said.out, &[&format!("→ {tool} ")]);
        let returned = said.out.lines().find(|line| line.contains(&format!("← {tool} ")));
        let returned = returned.unwrap_or_else(|| panic!("no return of {tool}:\n{}", said.out));
        assert_says(returned, &["ran on tool-handler/", " B"]);
        assert!(returned.contains(" ms,") || returned.contains(" µs,"), "no time: {returned}");
    }
    assert_says(
        &said.out,
        &[
            // What the tools found, in the final answer.
            "bus.md:1: # The bus",
            "The agent touches nothing outside itself.",
            "4 tool calls crossed the bus.",
            // And how to go on.
            "OPENAI_API_KEY=",
            "OPENROUTER_API_KEY=",
            "OPENAI_BASE_URL=",
            "cargo xtask local-model",
        ],
    );
    assert_eq!(said.err, "");
}

#[test]
fn the_demo_leaves_nothing_behind() {
    let workshop = Workshop::new();
    workshop.check(&["demo"], 0);
    let left = fs::read_dir(workshop.temporary()).expect("a folder").count();
    assert_eq!(left, 0, "temporary files stay");
    assert_eq!(workshop.names_in_root(), Vec::<String>::new());
}

#[test]
fn the_demo_ignores_a_configured_broker_and_model() {
    let workshop = Workshop::new();
    let mut command = workshop.command(&["demo"]);
    command.env("ROCKBOT_BUS__URL", "amqp://nobody:wrong@127.0.0.1:9/%2f");
    command.env("OPENAI_API_KEY", "sk-not-a-key").env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let said = crate::workshop::Said::of(command.output().expect("it runs"));
    said.assert_code(0, &["demo"]);
    assert_says(&said.out, &["4 tool calls crossed the bus."]);
}
