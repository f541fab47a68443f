//! `rockbot chat` with an embedded fleet and a scripted model.

use crate::workshop::{Said, Workshop, assert_says};

const SCRIPT: &str = r#"
[[turn]]
when = "read"
text = "Looking."

[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says: {{result.read_file}}"

[[turn]]
when = "hello"
text = "Hello."

[[turn]]
when = "fail"
text = "Half an answer"
fail = "interrupted"
"#;

/// A workshop with a script to play, and how to play it.
fn scripted(script: &str) -> (Workshop, String) {
    let workshop = Workshop::new();
    workshop.write("notes.md", "buy milk\n");
    let path = workshop.write("script.toml", script).display().to_string();
    (workshop, path)
}

fn chat(workshop: &Workshop, script: &str, arguments: &[&str], input: &str) -> Said {
    let mut command = workshop.command(&[&["chat"], arguments].concat());
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    Said::of(command.write_stdin(input).timeout(crate::workshop::PATIENCE).output().expect("runs"))
}

#[test]
fn without_a_model_it_says_the_three_ways_to_one() {
    let said = Workshop::new().check(&["chat", "hello"], 64);
    let words = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY", "[llm]", "base_url"];
    assert_says(&said.err, &words);
    assert_eq!(said.out, "");
}

#[test]
fn a_prompt_is_answered_with_what_tools_found() {
    let (workshop, script) = scripted(SCRIPT);
    let said = chat(&workshop, &script, &["read my notes"], "");
    said.assert_code(0, &["chat"]);
    let words =
        ["Looking.", "→ read_file ", "← read_file ran on tool-handler/", "It says: buy milk"];
    assert_says(&said.out, &words);
    assert_says(&said.err, &["model: the script"]);
}

#[test]
fn with_stats_an_answer_tells_what_it_took() {
    let (workshop, script) = scripted(SCRIPT);
    let said = chat(&workshop, &script, &["--stats", "read my notes"], "");
    said.assert_code(0, &["chat", "--stats"]);
    assert_says(
        &said.out,
        &["turn          2 model calls", "1 tool call (19 B in", "conversation"],
    );
}

#[test]
fn lines_of_standard_input_are_one_conversation() {
    let (workshop, script) = scripted(SCRIPT);
    let said = chat(&workshop, &script, &[], "hello\n\nread my notes\n");
    said.assert_code(0, &["chat"]);
    let hello = said.out.find("Hello.").expect("the first answer");
    let notes = said.out.find("It says: buy milk").expect("the second answer");
    assert!(hello < notes, "{}", said.out);
}

#[test]
fn as_json_every_line_is_an_event_and_the_last_one_the_answer() {
    let (workshop, script) = scripted(SCRIPT);
    let said = chat(&workshop, &script, &["--json", "read my notes"], "");
    said.assert_code(0, &["chat", "--json"]);
    assert_eq!(said.err, "");
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let events: Vec<_> = said.out.lines().map(read).collect();
    let finished = events.iter().find(|event| event["kind"] == "tool_finished").expect("a call");
    assert_eq!(
        (&finished["toolName"], &finished["executed"]),
        (&"read_file".into(), &"yes".into())
    );
    let last = events.last().expect("events");
    assert_eq!((&last["kind"], &last["outcome"]), (&"answer".into(), &"completed".into()));
}

#[test]
fn a_model_that_breaks_off_is_told_and_exit_code_69() {
    let (workshop, script) = scripted(SCRIPT);
    let said = chat(&workshop, &script, &["fail"], "");
    said.assert_code(69, &["chat", "fail"]);
    assert_says(&said.out, &["Half an answer", "broke before the answer was complete"]);
}

#[test]
fn an_unknown_agent_is_named_with_those_there_are() {
    let (workshop, script) = scripted(SCRIPT);
    let said = chat(&workshop, &script, &["hello", "--agent", "nobody"], "");
    said.assert_code(64, &["chat", "--agent", "nobody"]);
    assert_says(&said.err, &["\"nobody\"", "assistant"]);
}

#[test]
fn a_script_that_cannot_be_played_is_told_before_anything_starts() {
    let (workshop, script) = scripted("[[turn]]\ntxt = \"typo\"\n");
    let said = chat(&workshop, &script, &["hello"], "");
    said.assert_code(64, &["chat"]);
    assert_says(&said.err, &["script.toml", "txt"]);
}
