//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  rockbot demo                                   watch tool calls cross a bus; needs nothing
  OPENAI_API_KEY=… rockbot chat \"Tidy up notes.md\"
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3:8b rockbot chat
  rockbot tools list
  rockbot tools call read_file '{\"path\":\"README.md\"}'
  rockbot --bus amqp://guest:guest@localhost:5672/%2f doctor

Exit codes: 0 ok, 1 the tool answered with an error, 64 usage or configuration,
69 nobody serves it or no broker, 75 timed out or overloaded";

/// Tools for LLM agents: called by name, run by a fleet of services over a bus.
#[derive(Debug, Parser)]
#[command(name = "rockbot", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Absent only beside `--check-config`.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Talk to a running fleet (amqp://…) instead of embedding one (memory) [env: ROCKBOT_BUS__URL]
    #[arg(long, global = true, value_name = "URL", hide_env_values = true)]
    pub(crate) bus: Option<String>,
    /// Read this TOML file over the built-in defaults
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// The directory that embedded file tools work in [default: the current one]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say whether the configuration can be used, and leave
    #[arg(long, global = true)]
    pub(crate) check_config: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch a model's tool calls cross a bus, run somewhere else and come back
    ///
    /// Everything runs in this process: the in-memory bus, a tool handler with real tools in a
    /// temporary folder, an agent, and a scripted model. It needs no network, no key, no broker.
    Demo,
    /// Talk to an agent
    ///
    /// Embeds the fleet with the configured model, or talks to an agent of a running fleet with
    /// --bus. Without a prompt it is a conversation; Ctrl-C cancels a turn, Ctrl-D leaves.
    Chat(Chat),
    /// List, describe and call tools
    #[command(subcommand)]
    Tools(Tools),
    /// Run the fleet in this process until stopped: a tool handler, and an agent where a model is
    /// configured
    Up,
    /// Look at the bus, the queues, who serves which tool, and the round trip
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// What to say; a conversation when absent
    pub(crate) prompt: Option<String>,
    /// The agent to talk to [default: the configured one]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// List the tools that the fleet runs
    List,
    /// Show a tool's definition
    Describe {
        /// The tool
        name: String,
    },
    /// Call a tool
    #[command(after_help = "Examples:
  rockbot tools call read_file '{\"path\":\"README.md\"}'
  rockbot tools call write_file @arguments.json
  echo '{\"command\":\"ls\"}' | rockbot tools call bash -")]
    Call {
        /// The tool
        name: String,
        /// Its arguments: a JSON object, @FILE, or - for standard input [default: {}]
        arguments: Option<String>,
        /// How long the call may take, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,
    },
}
