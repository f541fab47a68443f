//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  rockbot demo                                   watch tool calls cross a bus; needs nothing
  OPENAI_API_KEY=… rockbot chat \"Tidy up notes.md\"
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3:8b rockbot chat
  rockbot tools list
  rockbot tools call read_file '{\"path\":\"README.md\"}'
  rockbot --mcp mcp.json mcp list
  rockbot script run report.py --input figures.csv
  rockbot --bus amqp://guest:guest@localhost:5672/%2f doctor
  rockbot --bus amqp://guest:guest@localhost:5672/%2f dlq list
  rockbot --bus amqp://guest:guest@localhost:5672/%2f watch --state failed

Exit codes: 0 ok, 1 the tool answered with an error, or what was found is not as it should be,
64 usage or configuration, 69 nobody serves it or no broker, 74 the output can't be written,
75 timed out or overloaded";

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
    /// Serve the MCP servers of this file beside an embedded fleet [env: ROCKBOT_MCP__CONFIG]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mcp: Option<PathBuf>,
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
    /// Show MCP servers, call their tools, add and remove servers, check a file of servers
    #[command(subcommand)]
    Mcp(Mcp),
    /// Run a script as a model would
    #[command(subcommand)]
    Script(ScriptCommand),
    /// Run the fleet in this process until stopped: a tool handler, and an agent where a model is
    /// configured
    Up,
    /// Look at the bus, the queues, who serves which tool, how busy they are, and the round trip
    #[command(after_help = "Exit codes: 0 all is well, 1 something is suspicious, 69 something \
        cannot be used. Dead letters are shown, and are no reason for another code than 0.")]
    Doctor,
    /// Watch the calls of a running fleet as they cross its bus
    ///
    /// A table of calls: who asked for what, who answered, how long it took. Keys: q leaves, space
    /// holds the picture, the arrows choose a call, Enter shows its stages, / filters. With --json,
    /// or when the output is no terminal, it prints one event a line as JSON. It takes no part: what
    /// it hears are copies.
    #[command(after_help = "Examples:
  rockbot watch
  rockbot watch --agent assistant --state failed
  rockbot watch --json --for 60 > calls.jsonl

Words of the filter that is typed after /: agent:TEXT, tool:TEXT, state:STATE, or any text")]
    Watch(Watch),
    /// Look at dead letters, ask again, or throw them away
    ///
    /// A dead letter is a message that was delivered too often, or that its consumer gave up. It
    /// waits for a week in a queue beside the work queue that it came from.
    #[command(subcommand)]
    Dlq(Dlq),
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
    /// Show what each answer took: model calls, tokens, tool calls, bytes, money
    #[arg(long)]
    pub(crate) stats: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only calls of agents whose name holds this; may be given several times
    #[arg(long = "agent", value_name = "TEXT")]
    pub(crate) agents: Vec<String>,
    /// Only calls of tools whose name holds this; may be given several times
    #[arg(long = "tool", value_name = "TEXT")]
    pub(crate) tools: Vec<String>,
    /// Only calls in this state, such as running, ok, timeout, or live, ended, failed; may be given
    /// several times
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<String>,
    /// Show arguments, results and messages too, up to 4 KiB of each
    #[arg(long)]
    pub(crate) content: bool,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// End when so many of the calls that are shown have ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) calls: Option<u64>,
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
    /// Approve the changed definition of a tool, after showing what changed
    ///
    /// An agent with a `[pins]` store does not use a tool whose definition is another one than it
    /// was, of a handler or of an MCP server. This trusts the definition that it has now, and no
    /// later one, for the agent `agent.name`.
    Approve {
        /// The tool, as `--list` names it
        #[arg(required_unless_present_any = ["all", "list"], conflicts_with_all = ["all", "list"])]
        name: Option<String>,
        /// Approve every tool that waits
        #[arg(long, conflicts_with = "list")]
        all: bool,
        /// Show what waits, and approve nothing
        #[arg(long)]
        list: bool,
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

#[derive(Debug, Subcommand)]
pub(crate) enum ScriptCommand {
    /// Run a Python script in the sandbox of this machine, in a container, or on a fleet
    ///
    /// What it prints goes to standard output, what it complains about to standard error, and with
    /// it how it ended and what it was isolated by.
    #[command(after_help = "Examples:
  rockbot script run report.py --input figures.csv
  echo 'print(6 * 7)' | rockbot script run -
  rockbot script run plot.py --package pandas --package numpy==2.1.0
  rockbot --bus amqp://guest:guest@localhost:5672/%2f script run report.py

Exit codes: 0 the script exited with 0, 1 it exited with another code or a limit ended it, 64 usage,
69 nobody can run it, 75 timed out or overloaded")]
    Run(Run),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The script, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// What it finds in ROCKBOT_INPUT and in the file named by ROCKBOT_INPUT_FILE; - for standard
    /// input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// Who runs it [default: the fleet with --bus, else what scripts.runner says]
    #[arg(long, value_enum)]
    pub(crate) runner: Option<Runner>,
    /// A package that it imports, such as pandas==2.2.3; may be given several times
    #[arg(long = "package", value_name = "PACKAGE")]
    pub(crate) packages: Vec<String>,
    /// How long it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,
}

/// Who runs a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runner {
    /// This machine, in a sandbox
    Local,
    /// A container of the Docker on this machine
    Docker,
    /// The scripts managers of a fleet
    Bus,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the servers that are connected, and what each is for
    List,
    /// Show a server and its tools, or one tool with its arguments
    Describe {
        /// The server, in any case
        server: String,
        /// One of its tools
        tool: Option<String>,
    },
    /// Call a tool of a server
    #[command(after_help = "Examples:
  rockbot --mcp mcp.json mcp call time get_current_time '{\"timezone\":\"UTC\"}'
  rockbot --bus amqp://guest:guest@localhost:5672/%2f mcp call github search_code @query.json")]
    Call {
        /// The server, in any case
        server: String,
        /// The tool, as the server names it
        tool: String,
        /// Its arguments: a JSON object, @FILE, or - for standard input [default: {}]
        arguments: Option<String>,
        /// How long the call may take, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,
    },
    /// Add a server to a running fleet, where its bridge allows that
    ///
    /// It is forgotten when the bridge stops. What is to stay belongs into the bridge's file of
    /// servers.
    #[command(after_help = "Examples:
  rockbot --bus amqp://… mcp add docs --url https://docs.example.com/mcp
  rockbot --bus amqp://… mcp add time -- uvx mcp-server-time")]
    Add {
        /// The name it gets
        server: String,
        /// Where it is served
        #[arg(
            long,
            value_name = "URL",
            conflicts_with = "command",
            required_unless_present = "command"
        )]
        url: Option<String>,
        /// A program that the bridge allows, and its arguments
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Remove a server that was added at run time
    Remove {
        /// The server, in any case
        server: String,
    },
    /// Log in at a remote server that wants it, in a browser
    ///
    /// What comes of it is kept in a file that only you can read, and used by every bridge that runs
    /// as you on this machine.
    #[command(after_help = "Examples:
  rockbot --mcp mcp.json mcp login github")]
    Login {
        /// The server, in any case
        server: String,
    },
    /// Connect to every server of a file, and tell how that went
    #[command(after_help = "Examples:
  rockbot mcp check mcp.json

Exit codes: 0 all connected, 1 some did not or an entry is wrong, 64 the file can't be used")]
    Check {
        /// A file of servers, such as mcp.json
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// List work queues with what waits in them and how many dead letters they have
    #[command(after_help = "Examples:
  rockbot dlq list
  rockbot dlq list tool.invoke user.message.writer --json")]
    List {
        /// Work queues to look at [default: tool.invoke, and those of the agents that are defined]
        #[arg(value_name = "QUEUE")]
        queues: Vec<String>,
    },
    /// Show dead letters; they stay where they are
    #[command(after_help = "Examples:
  rockbot dlq show tool.invoke
  rockbot dlq show tool.invoke --id 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f --body")]
    Show {
        /// The work queue that they come from
        queue: String,
        /// Show so many at most, the oldest first
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_most())]
        limit: u32,
        /// Show only the one with this message id
        #[arg(long, value_name = "MESSAGE_ID", conflicts_with = "limit")]
        id: Option<String>,
        /// Show what the messages say, too
        #[arg(long)]
        body: bool,
    },
    /// Send dead letters to their work queue again
    ///
    /// Each goes out as a new message under its old correlation id, with as much time as it had,
    /// and counts as asked again. Its dead letter goes away when the broker has confirmed the new
    /// message. A handler's journal decides what runs: a call that had ended is answered as it was,
    /// and one that had begun and must not run twice is answered outcome_unknown.
    #[command(after_help = "Examples:
  rockbot dlq replay tool.invoke --dry-run
  rockbot dlq replay tool.invoke --limit 1
  rockbot dlq replay tool.invoke --id 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f")]
    Replay {
        /// The work queue that they come from
        queue: String,
        #[command(flatten)]
        which: Which,
        /// Send so many at most, the oldest first [default: all]
        #[arg(long, value_name = "N", conflicts_with = "ids", value_parser = at_most())]
        limit: Option<u32>,
    },
    /// Delete dead letters for good
    #[command(after_help = "Examples:
  rockbot dlq purge tool.invoke
  rockbot dlq purge tool.invoke --id 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f --yes")]
    Purge {
        /// The work queue that they come from
        queue: String,
        #[command(flatten)]
        which: Which,
        /// Do not ask; needed where there is no terminal to ask on
        #[arg(long)]
        yes: bool,
    },
}

/// Which dead letters, and whether it is only a rehearsal.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Only the one with this message id; may be given several times
    #[arg(long = "id", value_name = "MESSAGE_ID")]
    pub(crate) ids: Vec<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How many dead letters a person looks at or sends.
fn at_most() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MOST_LETTERS))
}

/// Dead letters that are held at once; each may have 4 MiB.
pub(crate) const MOST_LETTERS: u32 = 1000;
