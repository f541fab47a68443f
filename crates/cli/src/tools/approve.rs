//! `rockbot tools approve`: trusts the changed definition of a tool.

use rockbot_contracts::AgentName;
use rockbot_service::exit;
use rockbot_store::StoreError;
use rockbot_tools::{Pin, PinnedDefinition, ToolPins};
use serde_json::json;

use crate::{
    ending::{Exits, Failure, Outcome},
    host::pins_store,
    print::say,
    settings::Settings,
    show,
};

/// The longest text that is shown of a definition, in bytes.
const MOST_SHOWN: usize = 8 * 1024;

/// Shows what waits: the tool of this name, or all without one. Approves it, unless it is only to
/// be listed.
pub(super) async fn run(
    settings: &Settings,
    name: Option<&str>,
    list: bool,
    json: bool,
) -> Outcome {
    let Some(store) = pins_store(settings).await? else {
        let problem = "no pins are kept: pins.store is not set, here or in the agent";
        return Err(Failure::usage(problem));
    };
    let agent = AgentName::new(settings.agent.name.as_str()).exits(exit::USAGE)?;
    let pins = ToolPins::new(store.clone(), agent);
    let outcome = decide(&pins, name, list, json).await;
    store.close().await;
    outcome
}

async fn decide(pins: &ToolPins, name: Option<&str>, list: bool, json: bool) -> Outcome {
    let mut waiting = pins.quarantined().await.map_err(|error| unusable(&error))?;
    waiting.retain(|pin| name.is_none_or(|name| pin.name == name));
    if let (Some(name), true) = (name, waiting.is_empty()) {
        let cause = anyhow::anyhow!(
            "{} does not wait for an approval; see rockbot tools approve --list",
            show::visible_line(name)
        );
        return Err(Failure { code: exit::ANSWERED_WITH_ERROR, cause });
    }
    let mut approved = Vec::new();
    for pin in &waiting {
        if !json {
            changes(pin)?;
        }
        if list {
            continue;
        }
        if !pins.approve(pin).await.map_err(|error| unusable(&error))? {
            let cause = anyhow::anyhow!("{} changed again meanwhile; look again", pin.name);
            return Err(Failure { code: exit::TEMPORARY, cause });
        }
        approved.push(pin.name.as_str());
        if !json {
            say!("{}\n", show::good(&format!("approved {}", pin.name)))?;
        }
    }
    if json {
        say!("{}", show::json(&json!({"waiting": waiting, "approved": approved})))?;
    } else if waiting.is_empty() {
        say!("No tool waits for an approval.")?;
    }
    Ok(exit::OK)
}

fn unusable(error: &StoreError) -> Failure {
    Failure::unavailable(format!("pins.store: {error}"))
}

/// What was approved, and what would be now.
fn changes(pin: &Pin) -> Result<(), Failure> {
    let Some(pending) = &pin.pending else { return Ok(()) };
    let bold = anstyle::Style::new().bold();
    let source = show::visible_line(&pin.source);
    say!("{bold}{}{bold:#} of {source}", show::visible_line(&pin.name))?;
    let parts = |one: &PinnedDefinition| {
        [
            ("description", one.description.clone()),
            ("arguments", format!("{:#}", one.parameters)),
            ("hints", json!(one.hints).to_string()),
            ("definition", one.fingerprint.clone()),
        ]
    };
    for ((part, before), (_, now)) in parts(&pin.approved).into_iter().zip(parts(pending)) {
        if before != now {
            say!("  {part}\n{}\n{}", lines('-', &before), lines('+', &now))?;
        }
    }
    Ok(())
}

fn lines(sign: char, text: &str) -> String {
    let shown = &text[..text.floor_char_boundary(MOST_SHOWN)];
    let mut lines: Vec<_> =
        shown.lines().map(|line| format!("    {sign} {}", show::visible_line(line))).collect();
    if shown.len() < text.len() {
        lines.push(format!("    {sign} … {} bytes more", text.len() - shown.len()));
    }
    lines.join("\n")
}
