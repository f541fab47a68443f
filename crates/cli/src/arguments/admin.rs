//! Arguments of `rockbot admin`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use rockbot_contracts::PoolName;

#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// Write the broker users of a fleet and their permissions
    ///
    /// Writes definitions.json, which RabbitMQ imports, and users.md, a table of the permissions.
    #[command(after_help = "Examples:
  rockbot admin broker-users --out deploy/rabbitmq
  rockbot admin broker-users --agent assistant --agent researcher \\
    --passwords /etc/rockbot/passwords --out /etc/rockbot")]
    BrokerUsers {
        #[command(flatten)]
        fleet: FleetUsers,
        /// Directory for the files
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: PathBuf,
        /// File with lines of `USER PASSWORD`, whose hashes are written into the definitions
        ///
        /// Passwords of missing users are generated and added. The file and the definitions are readable
        /// only by their owner. Without it, the users cannot log in with a password.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        passwords: Option<PathBuf>,
    },
    /// Write the secrets of a fleet: passwords, definitions with their hashes, URLs
    ///
    /// Existing passwords are kept. For Kubernetes, the folders broker and store have a file for each key
    /// of a secret. For Compose, the files are those that its services mount.
    #[command(after_help = "Examples:
  rockbot admin secrets --out secrets
  kubectl create secret generic rockbot-broker --from-file=secrets/broker
  rockbot admin secrets --broker amqps://broker.example.org/%2f --out secrets
  rockbot admin secrets --layout compose --out deploy/compose/secrets")]
    Secrets {
        #[command(flatten)]
        fleet: FleetUsers,
        /// Directory for the files; only its owner can enter it
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: PathBuf,
        /// The files to write
        #[arg(long, value_enum, default_value_t = Layout::Kubernetes)]
        layout: Layout,
        /// URL of the broker, without a user, for Kubernetes
        #[arg(long, value_name = "URL", default_value = "amqp://rockbot-rabbitmq:5672/%2f")]
        broker: String,
        /// URL of the database, without a user, for Kubernetes
        #[arg(
            long,
            value_name = "URL",
            default_value = "postgres://rockbot-postgresql:5432/rockbot"
        )]
        database: String,
    },
    /// Check that written broker users have the permissions that this version needs
    #[command(after_help = "Examples:
  rockbot admin check deploy/rabbitmq
  rockbot admin check secrets/broker --agent assistant --agent researcher

Exit codes: 0 up to date, 1 users or permissions differ")]
    Check {
        #[command(flatten)]
        fleet: FleetUsers,
        /// Directory of definitions.json
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// The broker users of a fleet.
#[derive(Debug, Args)]
pub(crate) struct FleetUsers {
    /// An agent of the fleet; repeatable [default: the configured agents]
    #[arg(long = "agent", value_name = "NAME")]
    pub(crate) agents: Vec<String>,
    /// A named pool of tool handlers; repeatable [default: fleet.pools]
    #[arg(long = "pool", value_name = "NAME")]
    pub(crate) pools: Vec<PoolName>,
    /// Name of the exchange, and prefix of queues and users [default: bus.namespace]
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Virtual host of the fleet
    #[arg(long, value_name = "NAME", default_value = "/")]
    pub(crate) vhost: String,
}

/// Files with the secrets of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// A folder for each secret of the Helm chart
    Kubernetes,
    /// The files of deploy/compose
    Compose,
}
