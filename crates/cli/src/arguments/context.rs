//! Arguments of `rockbot context`.

use clap::Subcommand;

/// `rockbot context`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Add a connection, or replace the one of this name
    ///
    /// The URL is that of --bus, or of ROCKBOT_BUS__URL or ROCKBOT_BUS__URL_FILE, which hide its password from
    /// other users of this machine. The first context is selected.
    #[command(after_help = "Examples:
  rockbot context add local --bus amqp://guest:guest@localhost:5672/%2f
  ROCKBOT_BUS__URL_FILE=url.txt rockbot context add prod --production")]
    Add {
        /// Name of the context
        name: String,
        /// Namespace of the fleet [default: the configured one]
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// Use the production profile, and show the name in red
        #[arg(long)]
        production: bool,
    },
    /// Select the connection that commands use
    Use {
        /// Name of the context
        #[arg(required_unless_present = "none", conflicts_with = "none")]
        name: Option<String>,
        /// Select none
        #[arg(long)]
        none: bool,
    },
    /// List the contexts
    List,
    /// Remove a context
    Remove {
        /// Name of the context
        name: String,
    },
}
