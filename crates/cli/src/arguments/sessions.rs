//! Arguments of `rockbot sessions`.

use clap::{Args, Subcommand, ValueEnum};
use rockbot_contracts::{MessageId, SessionId, conversation::FeedbackRating};

#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List conversations, the last active first
    #[command(after_help = "Examples:
  rockbot sessions list
  rockbot --bus amqp://… sessions list --agent researcher --json")]
    List {
        /// Maximum number of conversations to show
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Show a conversation: messages, tool calls with their results, answers
    #[command(after_help = "Examples:
  rockbot sessions show 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f")]
    Show {
        #[command(flatten)]
        session: SessionArgument,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Print everything that is recorded of a conversation, as one JSON object per line
    #[command(after_help = "Examples:
  rockbot sessions export 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f > conversation.jsonl")]
    Export {
        #[command(flatten)]
        session: SessionArgument,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Rate an answer; the agent records the rating in the conversation
    #[command(after_help = "Examples:
  rockbot sessions feedback 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f good
  rockbot sessions feedback 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f bad The total is wrong

Exit codes: 0 recorded, 1 the conversation or the answer does not exist")]
    Feedback {
        #[command(flatten)]
        session: SessionArgument,
        /// The rating
        #[arg(value_enum)]
        rating: Rating,
        /// A comment, at most 16 KiB
        #[arg(value_name = "COMMENT")]
        comment: Vec<String>,
        /// The message whose answer is rated, as shown by `rockbot sessions export` [default: the last]
        #[arg(long, value_name = "ID", value_parser = message_id)]
        message: Option<MessageId>,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Delete conversations permanently
    #[command(after_help = "Examples:
  rockbot sessions delete 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f
  rockbot sessions delete --all --yes

Exit codes: 0 deleted, 1 a conversation does not exist or its turn is running, 64 confirmation is missing")]
    Delete {
        /// Ids of the conversations
        #[arg(value_name = "SESSION", required_unless_present = "all", conflicts_with = "all", value_parser = session_id)]
        sessions: Vec<SessionId>,
        /// Delete all conversations of the agent
        #[arg(long)]
        all: bool,
        /// Delete without confirmation; required when standard input is not a terminal
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Continue a turn that was interrupted, and print the rest of it
    ///
    /// Embeds a fleet with the configured model, or waits for the agent of a running fleet with --bus.
    #[command(after_help = "Examples:
  rockbot sessions resume 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f

Exit codes: as for chat; 0 if no turn is open")]
    Resume {
        #[command(flatten)]
        session: SessionArgument,
        #[command(flatten)]
        of: AgentOption,
    },
}

impl Sessions {
    /// Returns the agent whose conversations are meant, if it was given.
    pub(crate) fn agent(&self) -> Option<&String> {
        let (Self::List { of, .. }
        | Self::Show { of, .. }
        | Self::Export { of, .. }
        | Self::Feedback { of, .. }
        | Self::Delete { of, .. }
        | Self::Resume { of, .. }) = self;
        of.agent.as_ref()
    }
}

/// A rating of an answer.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Rating {
    /// It helped
    Good,
    /// It did not help, or did harm
    Bad,
}

impl From<Rating> for FeedbackRating {
    fn from(rating: Rating) -> Self {
        match rating {
            Rating::Good => Self::Positive,
            Rating::Bad => Self::Negative,
        }
    }
}

/// The agent whose conversations are meant.
#[derive(Debug, Args)]
pub(crate) struct AgentOption {
    /// The agent [default: the configured agent]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

/// One conversation.
#[derive(Debug, Args)]
pub(crate) struct SessionArgument {
    /// Id of the conversation, as shown by `rockbot sessions list`
    #[arg(value_name = "SESSION", value_parser = session_id)]
    pub(crate) session: SessionId,
}

/// Parses the id of a message.
fn message_id(text: &str) -> Result<MessageId, String> {
    MessageId::new(text).map_err(|error| error.to_string())
}

/// Parses the id of a conversation.
pub(crate) fn session_id(text: &str) -> Result<SessionId, String> {
    SessionId::new(text).map_err(|error| error.to_string())
}
