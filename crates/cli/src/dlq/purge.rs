//! `rockbot dlq purge`: deletes dead letters permanently.

use rockbot_bus::Bus;
use rockbot_contracts::QueueName;
use rockbot_monitor::letters::{self, Purged, Selection};
use rockbot_service::exit;
use serde_json::json;

use super::failure::failure_of;
use crate::{
    arguments::LetterSelection,
    confirm::confirm,
    failure::Outcome,
    print::{note, outln},
    render,
};

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: &LetterSelection,
    yes: bool,
    json: bool,
) -> Outcome {
    let waiting = letters::count(bus, queue).await.map_err(failure_of)?;
    let number = if selection.ids.is_empty() { waiting as usize } else { selection.ids.len() };
    let letters = render::count(number, "dead letter");
    let prompts = !yes && !selection.dry_run && number > 0;
    if prompts && !confirm(format!("Delete {letters} of {queue} permanently? [y/N] ")).await? {
        note!("nothing was deleted");
        return Ok(exit::OK);
    }
    // No more than counted: letters that arrived later were not confirmed.
    let selected = Selection::new(&selection.ids, waiting);
    let purged = letters::purge(bus, queue, selected, selection.dry_run).await;
    let Purged { deleted, left, failure } = purged.map_err(failure_of)?;
    let failure = failure.map(failure_of);
    if json {
        let error = failure.as_ref().map(|failure| format!("{:#}", failure.cause));
        let report = json!({"queue": queue.as_str(), "dryRun": selection.dry_run,
            "deleted": deleted, "left": left, "error": error});
        outln!("{}", render::json(&report))?;
    } else {
        let verb = if selection.dry_run { "would be deleted" } else { "deleted" };
        outln!("{} of {queue} {verb}, {left} left", render::count(deleted.len(), "dead letter"))?;
    }
    failure.map_or(Ok(exit::OK), Err)
}
