//! `rockbot tools approve`: approves the changed definition of a tool.

use rockbot_contracts::AgentName;
use rockbot_service::exit;
use rockbot_store::StoreError;
use rockbot_tools::{Pin, PinnedDefinition, ToolPins};
use serde_json::json;

use crate::{
    failure::{Failure, OrExit, Outcome},
    host::open_pins_store,
    print::outln,
    render,
    settings::Settings,
};

/// The longest shown prefix of a text in a definition, in bytes.
const MAX_SHOWN_BYTES: usize = 8 * 1024;

/// Shows the pending tool `name`, or all pending tools, and approves them unless `list` is set.
pub(super) async fn run(
    settings: &Settings,
    name: Option<&str>,
    list: bool,
    json: bool,
) -> Outcome {
    let Some(store) = open_pins_store(settings).await? else {
        return Err(Failure::usage(
            "pins.store is not set; set it to the store that the agent uses",
        ));
    };
    let agent = AgentName::new(settings.agent.name.as_str()).or_exit(exit::USAGE)?;
    let pins = ToolPins::new(store.clone(), agent);
    let outcome = approve(&pins, name, list, json).await;
    store.close().await;
    outcome
}

async fn approve(pins: &ToolPins, name: Option<&str>, list: bool, json: bool) -> Outcome {
    let mut pending = pins.pending().await.map_err(|error| unusable(&error))?;
    pending.retain(|pin| name.is_none_or(|name| pin.name == name));
    if let (Some(name), true) = (name, pending.is_empty()) {
        let cause = anyhow::anyhow!(
            "tool {} has no pending change; see rockbot tools approve --list",
            render::visible_line(name)
        );
        return Err(Failure { code: exit::ANSWERED_WITH_ERROR, cause });
    }
    let mut approved = Vec::new();
    for pin in &pending {
        if !json {
            print_changes(pin)?;
        }
        if list {
            continue;
        }
        if !pins.approve(pin).await.map_err(|error| unusable(&error))? {
            let cause = anyhow::anyhow!(
                "tool {} changed during the approval; review it again with --list",
                pin.name
            );
            return Err(Failure { code: exit::TEMPORARY, cause });
        }
        approved.push(pin.name.as_str());
        if !json {
            outln!("{}\n", render::good(&format!("approved {}", pin.name)))?;
        }
    }
    if json {
        outln!("{}", render::json(&json!({"pending": pending, "approved": approved})))?;
    } else if pending.is_empty() {
        outln!("no tool has a pending change")?;
    }
    Ok(exit::OK)
}

fn unusable(error: &StoreError) -> Failure {
    Failure::unavailable(format!("pins.store: {error}"))
}

/// Prints the differences between the approved and the pending definition.
fn print_changes(pin: &Pin) -> Result<(), Failure> {
    let Some(pending) = &pin.pending else { return Ok(()) };
    let bold = anstyle::Style::new().bold();
    let source = render::visible_line(&pin.source);
    outln!("{bold}{}{bold:#} of {source}", render::visible_line(&pin.name))?;
    let parts = |one: &PinnedDefinition| {
        [
            ("description", one.description.clone()),
            ("arguments", format!("{:#}", one.parameters)),
            ("hints", json!(one.hints).to_string()),
            ("definition", one.fingerprint.clone()),
            ("routing key", one.invoke_key.as_ref().map(ToString::to_string).unwrap_or_default()),
        ]
    };
    for ((part, before), (_, now)) in parts(&pin.approved).into_iter().zip(parts(pending)) {
        if before != now {
            outln!("  {part}\n{}\n{}", prefix_lines('-', &before), prefix_lines('+', &now))?;
        }
    }
    Ok(())
}

fn prefix_lines(sign: char, text: &str) -> String {
    let shown = &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)];
    let mut lines: Vec<_> =
        shown.lines().map(|line| format!("    {sign} {}", render::visible_line(line))).collect();
    if shown.len() < text.len() {
        lines.push(format!("    {sign} … {} more bytes", text.len() - shown.len()));
    }
    lines.join("\n")
}
