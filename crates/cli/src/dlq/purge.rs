//! `rockbot dlq purge`: dead letters are deleted for good.

use std::io::{IsTerminal, Write};

use anyhow::{Context, anyhow};
use rockbot_bus::{Bus, Settlement};
use rockbot_contracts::QueueName;
use rockbot_service::exit;
use serde_json::json;

use super::letters::{Choice, Letters, Purpose, count};
use crate::{
    arguments::Which,
    ending::{Exits, Failure, Outcome},
    print::{note, say},
    show,
};

/// What is gone, and what is not.
#[derive(Debug)]
pub(super) struct Purged {
    /// The message ids of the letters; with a rehearsal, of those that would go.
    pub(super) gone: Vec<String>,
    /// How many dead letters stay in the queue, those that were not chosen among them.
    pub(super) left: u32,
    /// Why it stopped before the last one.
    pub(super) stopped: Option<Failure>,
}

/// Refuses to delete where nobody can be asked and nobody said yes.
pub(super) fn check_that_one_may(yes: bool) -> Result<(), Failure> {
    if yes || std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage("there is no terminal to ask on; add --yes to delete, or --dry-run to look"))
}

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    which: &Which,
    yes: bool,
    json: bool,
) -> Outcome {
    let waiting = count(bus, queue).await?;
    let many = if which.ids.is_empty() { waiting as usize } else { which.ids.len() };
    let what = show::count(many, "dead letter");
    let ask = !yes && !which.dry_run && many > 0;
    if ask && !agreed(format!("Delete {what} of {queue} for good? [y/N] ")).await? {
        note!("nothing was deleted");
        return Ok(exit::OK);
    }
    // No more than were counted: what comes in meanwhile was not asked about.
    let choice = Choice::of(&which.ids, waiting);
    let Purged { gone, left, stopped } = purge(bus, queue, choice, which.dry_run).await?;
    if json {
        let error = stopped.as_ref().map(|failure| format!("{:#}", failure.cause));
        let said = json!({"queue": queue.as_str(), "dryRun": which.dry_run, "deleted": gone,
            "left": left, "error": error});
        say!("{}", show::json(&said))?;
    } else {
        let verb = if which.dry_run { "would be deleted" } else { "deleted" };
        say!("{} of {queue} {verb}, {left} left", show::count(gone.len(), "dead letter"))?;
    }
    stopped.map_or(Ok(exit::OK), Err)
}

/// Whether whoever sits at the terminal agrees.
async fn agreed(question: String) -> Result<bool, Failure> {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stderr = anstream::stderr().lock();
        write!(stderr, "{question}")?;
        stderr.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        std::io::Result::Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    });
    asked.await.exits(exit::SOFTWARE)?.context("cannot ask; --yes agrees").exits(exit::IO)
}

/// Deletes the chosen letters; stops at the first that can't be deleted.
pub(super) async fn purge(
    bus: &dyn Bus,
    queue: &QueueName,
    choice: Choice<'_>,
    dry_run: bool,
) -> Result<Purged, Failure> {
    let purpose = if dry_run { Purpose::Look } else { Purpose::Settle };
    let mut letters = Letters::open(bus, queue, choice, purpose).await?;
    let mut purged = Purged { gone: Vec::new(), left: letters.waiting(), stopped: None };
    while let Some(letter) = letters.next().await {
        let id = letter.delivery.envelope().message_id.to_string();
        if dry_run {
            letters.keep(letter);
        } else if let Err(error) = letter.delivery.settle(Settlement::Ack).await {
            let cause = anyhow!(error).context("a dead letter could not be deleted");
            purged.stopped = Some(Failure { code: exit::UNAVAILABLE, cause });
            break;
        } else {
            purged.left -= 1;
        }
        purged.gone.push(id);
    }
    letters.close().await;
    Ok(purged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlq::letters::tests::Bin;

    #[tokio::test]
    async fn a_rehearsal_deletes_nothing() {
        let bin = Bin::with(3).await;
        let ids = bin.ids().await;
        let purged = purge(&bin.bus, &bin.queue, Choice::Oldest(u32::MAX), true).await.unwrap();
        assert_eq!((purged.gone, purged.left), (ids, 3));
        assert_eq!(bin.texts().await, ["0", "1", "2"]);
    }

    #[tokio::test]
    async fn the_chosen_are_gone_and_the_others_stay() {
        let mut bin = Bin::with(4).await;
        let chosen = [bin.ids().await.remove(2)];
        let purged = purge(&bin.bus, &bin.queue, Choice::ByIds(&chosen), false).await.unwrap();
        assert_eq!((purged.gone.as_slice(), purged.left), (&chosen[..], 3));
        assert_eq!(bin.texts().await, ["0", "1", "3"]);
        purge(&bin.bus, &bin.queue, Choice::Oldest(u32::MAX), false).await.unwrap();
        assert!(bin.texts().await.is_empty());
        assert!(bin.at_work().await.is_empty(), "nothing was sent");
    }
}
