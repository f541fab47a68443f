//! Options of the output of a conversation.

use std::path::PathBuf;

use clap::ValueEnum;
use rockbot_contracts::user::ReplyDetail;

/// Detail of printed tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Show {
    /// One line for the start of a call and one for its end
    #[default]
    Brief,
    /// The whole arguments
    Calls,
    /// The whole arguments, and the results
    Results,
}

/// Options of the output.
#[derive(Debug, Clone, Default)]
pub(crate) struct Display {
    /// Print each reply as one line of JSON.
    pub(crate) json: bool,
    /// Print the usage of each turn.
    pub(crate) stats: bool,
    pub(crate) show: Show,
    /// Keep the arguments and results of calls, also if they are not printed.
    pub(crate) keeps_calls: bool,
    /// Name of the model, if it is known.
    pub(crate) model: Option<String>,
    /// Root of the file tools, if they work on this machine.
    pub(crate) files: Option<PathBuf>,
}

impl Display {
    /// Returns the detail of replies to ask for.
    pub(super) fn detail(&self) -> ReplyDetail {
        if self.keeps_calls || self.show != Show::Brief {
            ReplyDetail::Full
        } else {
            ReplyDetail::Brief
        }
    }
}
