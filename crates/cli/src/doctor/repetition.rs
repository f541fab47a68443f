//! `rockbot doctor --watch`: repeats the check until it is interrupted.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use rockbot_service::{Interrupts, exit};
use serde_json::json;
use tokio::time::sleep;

use super::{
    diagnosis::{Diagnosis, Preparation},
    report,
};
use crate::{
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    print::outln,
    render,
    settings::Settings,
};

/// Moves to the first line of a terminal and clears it.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Checks the fleet until Ctrl-C, with this pause between two checks. Returns the outcome of the last check; 0 if
/// there was none.
pub(super) async fn run(
    settings: &Settings,
    fleet: &Fleet,
    preparation: &mut Preparation,
    pause: Duration,
    json: bool,
) -> Outcome {
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let mut last = Ok(exit::OK);
    loop {
        let diagnosis = tokio::select! {
            _ = interrupts.recv() => return last,
            diagnosis = Diagnosis::check(settings, fleet, preparation) => diagnosis,
        };
        last = show(diagnosis, pause, json)?;
        tokio::select! {
            _ = interrupts.recv() => return last,
            () = sleep(pause) => {}
        }
    }
}

/// Prints a check and returns its outcome. Fails only when it cannot be printed.
fn show(
    diagnosis: Result<Diagnosis, Failure>,
    pause: Duration,
    json: bool,
) -> Result<Outcome, Failure> {
    if json {
        return Ok(match diagnosis {
            Ok(diagnosis) => report(&diagnosis, Some(render::json_line))?,
            Err(failure) => {
                let error = format!("{:#}", failure.cause);
                outln!("{}", render::json_line(&json!({"error": error})))?;
                Err(failure)
            }
        });
    }
    if io::stdout().is_terminal() {
        outln!("{CLEAR}{}", render::dim(&format!("every {pause:?}; Ctrl-C ends")))?;
    }
    let outcome = match diagnosis {
        Ok(diagnosis) => report(&diagnosis, None)?,
        Err(failure) => Err(failure),
    };
    if let Err(failure) = &outcome {
        outln!("\n{}", render::bad(&render::clean(&format!("{:#}", failure.cause))))?;
    }
    Ok(outcome)
}
