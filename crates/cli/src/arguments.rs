//! Command-line arguments.

mod admin;
mod agents;
mod bench;
mod context;
mod dlq;
#[cfg(test)]
pub(crate) mod documented;
mod gateway;
mod init;
mod mcp;
mod schedule;
mod sessions;
mod tasks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use rockbot_contracts::{PoolName, SessionId, identity::User};

use self::sessions::session_id;
pub(crate) use self::{
    admin::{Admin, FleetUsers, Layout},
    agents::Agents,
    bench::Bench,
    context::ContextCommand,
    dlq::{Dlq, LetterSelection},
    gateway::{Gateway, NewToken, Token as TokenCommand, TokensFile},
    init::Init,
    mcp::{Mcp, ServeMcp},
    schedule::Schedule,
    sessions::Sessions,
    tasks::Tasks,
};
use crate::{contexts::SelectedContextUse, conversation::Show};

const EXAMPLES: &str = "\
Examples:
  rockbot demo                                   run tool calls over a bus; no set-up needed
  rockbot demo --web                             the same in the web console
  OPENAI_API_KEY=… rockbot chat \"Tidy up notes.md\"
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3:8b rockbot chat
  rockbot chat --continue
  rockbot sessions list
  rockbot agents
  rockbot tools list
  rockbot tools list --agent assistant
  rockbot tools call read_file '{\"path\":\"README.md\"}'
  rockbot --mcp mcp.json mcp list
  rockbot rest check rest.json
  rockbot script run report.py --input figures.csv
  rockbot --bus amqp://guest:guest@localhost:5672/%2f doctor
  rockbot --bus amqp://guest:guest@localhost:5672/%2f dlq list
  rockbot --bus amqp://guest:guest@localhost:5672/%2f watch --state failed

Exit codes: 0 success, 1 the tool returned an error or a check failed, 64 invalid usage or
configuration, 69 no handler or broker is available, 74 the output cannot be written, 75 timed out
or overloaded";

/// Tools for LLM agents: agents call them by name, a fleet of services runs them over a message bus
#[derive(Debug, Parser)]
#[command(name = "rockbot", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// `None` only with `--check-config`.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Global options.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Connect to a running fleet (amqp://…) instead of embedding one (memory) [env: ROCKBOT_BUS__URL]
    #[arg(long, global = true, value_name = "URL", hide_env_values = true)]
    pub(crate) bus: Option<String>,
    /// Connect to the fleet of this context, see "rockbot context"
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "bus")]
    pub(crate) context: Option<String>,
    /// Configuration file in TOML; overrides the built-in defaults [default: rockbot.toml in
    /// $XDG_CONFIG_HOME/rockbot, if it exists]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Root directory of the embedded file tools [default: the current directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// Connect the embedded fleet to the MCP servers in this file [env: ROCKBOT_MCP__CONFIG]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mcp: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Validate the configuration and exit
    #[arg(long, global = true)]
    pub(crate) check_config: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scripted model whose tool calls cross a message bus
    ///
    /// Everything runs in this process: an in-memory bus, a tool handler with real tools in a temporary
    /// directory, an agent, and a scripted model. No network, API key or broker is needed.
    #[command(after_help = "Examples:
  rockbot demo
  rockbot demo --web
  rockbot demo --watch
  rockbot demo --team")]
    Demo {
        /// Serve the web console, at http://127.0.0.1:8420, and print a login link; each message in the console runs
        /// the demo. Ends with Ctrl-C or SIGTERM
        #[arg(long, conflicts_with_all = ["team", "watch"])]
        web: bool,
        /// Show a task that the agent divides among sub-agents: several calls in one, reports, a process that is killed,
        /// plans, results, spending
        #[arg(long)]
        team: bool,
        /// Watch the calls on the bus instead, as `rockbot watch` shows them: on a terminal until q is pressed,
        /// otherwise one JSON event per line
        #[arg(long, conflicts_with = "team")]
        watch: bool,
        /// Be the process that is killed
        #[arg(long, hide = true, requires = "team", value_name = "DIR")]
        first_process: Option<PathBuf>,
    },
    /// Find a model, try it, and write the configuration file
    ///
    /// Considers OPENAI_API_KEY, OPENAI_BASE_URL and OPENROUTER_API_KEY, Ollama at port 11434 and llama.cpp at
    /// port 8080 of this machine. Writes rockbot.toml in $XDG_CONFIG_HOME/rockbot, which only its owner can
    /// read, and which all commands then use without --config.
    #[command(after_help = "Examples:
  rockbot init
  rockbot init --yes --save-key
  rockbot init --base-url http://127.0.0.1:11434/v1 --model qwen3:8b --yes")]
    Init(Init),
    /// Chat with an agent
    ///
    /// Embeds a fleet with the configured model, or uses an agent of a running fleet with --bus. Without
    /// a prompt it starts an interactive session: /help lists its commands, Ctrl-C cancels a turn, Ctrl-D
    /// exits.
    Chat(Chat),
    /// List, show, export, delete and resume stored conversations
    ///
    /// Uses the store of the embedded agent, or asks an agent of a running fleet with --bus.
    #[command(subcommand)]
    Sessions(Sessions),
    /// List the agents: whether they run, their models, tools and descriptions
    ///
    /// Lists the configured agent and those of its folder, the agents that they have as tools, and with --bus those
    /// that announce themselves to others.
    #[command(after_help = "Examples:
  rockbot agents
  rockbot --bus amqp://guest:guest@localhost:5672/%2f agents --json
  rockbot --bus amqp://… agents ask researcher Compare the three proposals")]
    Agents {
        #[command(subcommand)]
        command: Option<Agents>,
    },
    /// List, show, add, cancel and run scheduled tasks
    ///
    /// Uses the store of the embedded agent, or asks an agent of a running fleet with --bus.
    #[command(subcommand)]
    Schedule(Schedule),
    /// List, show and cancel the sub-agents and tasks of a running agent
    #[command(subcommand)]
    Tasks(Tasks),
    /// List, describe and call tools
    #[command(subcommand)]
    Tools(Tools),
    /// List MCP servers, call their tools, add and remove servers, check a server file
    #[command(subcommand)]
    Mcp(Mcp),
    /// Check a file of REST tools, list the configured ones, call one in this process
    #[command(subcommand)]
    Rest(Rest),
    /// Run a script in the script sandbox
    #[command(subcommand)]
    Script(ScriptCommand),
    /// Run a tool handler, and an agent if a model is configured, until stopped
    ///
    /// With admin.address it serves /healthz, /readyz and /metrics, and with telemetry.otlp_endpoint it
    /// exports traces, like the services of a fleet.
    #[command(after_help = "Examples:
  rockbot up
  rockbot up --web
  ROCKBOT_ADMIN__ADDRESS=127.0.0.1:9090 rockbot up
  ROCKBOT_TELEMETRY__OTLP_ENDPOINT=http://127.0.0.1:4317 rockbot --bus amqp://… up")]
    Up(Up),
    /// Check the bus, the queues, the tool handlers and their load, and the round-trip time
    #[command(
        after_help = "Exit codes: 0 healthy, 1 a check failed, 69 the fleet cannot be used. Dead \
        letters are reported as warnings and do not change the exit code. With --watch, the exit code is \
        that of the last check."
    )]
    Doctor {
        /// Check again after each pause of SECONDS, 5 by default, until Ctrl-C; with --json one line for each
        /// check
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
              value_parser = clap::value_parser!(u64).range(1..=3600))]
        watch: Option<u64>,
    },
    /// Show whether a call ran, as the journal has it
    ///
    /// Reads the store of the handlers in store.url, and in an embedded fleet that of the conversations too.
    /// An entry is kept for store.keep. Calls of read-only tools are not recorded.
    #[command(after_help = "Examples:
  rockbot call 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f
  ROCKBOT_STORE__URL_FILE=store-url.txt rockbot call 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f --json

Exit codes: 0 the journal has the call, 1 it does not, 64 invalid usage, 69 the store is unavailable")]
    Call {
        /// Id of the call, as shown by watch, in logs and in errors
        #[arg(value_name = "CALL_ID")]
        id: String,
    },
    /// Measure the rate and the latencies of the bus, or of a read-only tool
    ///
    /// Without --tool, it sends messages over the bus to itself. It prints the rate, the percentiles of the
    /// latencies, and the failures; Ctrl-C ends it early.
    #[command(after_help = "Examples:
  rockbot bench --calls 1000 --concurrency 32
  rockbot --bus amqp://guest:guest@localhost:5672/%2f bench
  rockbot bench --calls 200 --tool read_file path=README.md

Exit codes: 0 all succeeded, 1 some failed, 64 invalid usage, 69 no handler or broker is available")]
    Bench(Bench),
    /// Watch the tool calls of a running fleet
    ///
    /// Shows a table of calls with caller, tool, state, latency and handler. Keys: q quits, space pauses
    /// the display, the arrow keys select a call, Enter shows its details, t groups by tool, o orders by start,
    /// duration or wait, y copies the id of the selected call, / filters. With --json, or when the output is not a
    /// terminal, it prints one JSON event per line. It receives copies of the messages and does not affect the
    /// fleet.
    #[command(after_help = "Examples:
  rockbot watch
  rockbot watch --agent assistant --state failed
  rockbot watch --json --for 60 > calls.jsonl

Filter syntax after /: agent:TEXT, tool:TEXT, state:STATE, or any text")]
    Watch(Watch),
    /// Check the workers of a handler pool
    #[command(subcommand)]
    Worker(Worker),
    /// Inspect, replay or purge dead letters
    ///
    /// A dead letter is a message that was delivered too often or that its consumer rejected. It is kept
    /// for a week in the dead-letter queue of its work queue.
    #[command(subcommand)]
    Dlq(Dlq),
    /// Manage who may use a gateway
    #[command(subcommand)]
    Gateway(Gateway),
    /// Generate and check the broker users of a fleet, their passwords and URLs
    #[command(subcommand)]
    Admin(Admin),
    /// Add, select, list and remove named broker connections
    ///
    /// They are kept in contexts.toml in $XDG_CONFIG_HOME/rockbot, which only its owner can read. --bus and
    /// ROCKBOT_BUS__URL take precedence over the selected one; "--bus memory" embeds a fleet. "up" and "mcp
    /// serve" use a context only if it is named with --context.
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print a shell completion script
    ///
    /// The script also completes the names of tools, agents and queues that commands have discovered.
    #[command(after_help = "Examples:
  rockbot completions bash > ~/.local/share/bash-completion/completions/rockbot
  rockbot completions zsh > ~/.zfunc/_rockbot
  rockbot completions fish > ~/.config/fish/completions/rockbot.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    #[command(after_help = "Examples:
  rockbot man ~/.local/share/man/man1")]
    Man {
        /// Folder for the pages; created if missing
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Print the names that complete the last word, for the completion scripts
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words of the command line
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

impl Command {
    /// Returns whether the command calls a tool, so that its failures say whether the tool ran.
    pub(crate) fn calls_tool(&self) -> bool {
        matches!(
            self,
            Self::Tools(Tools::Call { .. })
                | Self::Mcp(Mcp::Call { .. })
                | Self::Rest(Rest::Call { .. })
                | Self::Script(_)
        )
    }

    /// Returns whether the command uses the selected context. Those that start services or are started by
    /// other programs do not: a selection that was made for another purpose must not move them.
    pub(crate) fn selected_context(&self) -> SelectedContextUse {
        match self {
            Self::Up(_) | Self::Mcp(Mcp::Serve(_)) => SelectedContextUse::Ignore,
            _ => SelectedContextUse::Join,
        }
    }

    /// Returns the broker user that has the permissions of the command; `None` for `up`, which needs
    /// those of several users.
    pub(crate) fn broker_user(&self) -> Option<User> {
        match self {
            Self::Watch(_) => Some(User::Monitor),
            Self::Dlq(_) => Some(User::Operator),
            Self::Up(_) => None,
            _ => Some(User::Cli),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Serve the web console and the OpenAI-compatible API, at http://127.0.0.1:8420, and print a login link
    #[arg(long)]
    pub(crate) web: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// The message; an interactive session when absent
    pub(crate) prompt: Option<String>,
    /// The agent [default: the configured agent]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Continue the conversation that was active last, and its turn if one was interrupted
    #[arg(long = "continue", conflicts_with = "session")]
    pub(crate) continues: bool,
    /// Continue this conversation, and its turn if one was interrupted
    #[arg(long, value_name = "SESSION", value_parser = session_id)]
    pub(crate) session: Option<SessionId>,
    /// Send this image with the message, for a model that reads images: PNG, JPEG, GIF or WebP; repeatable.
    /// In a session, the line "/image FILE" sends one with the next message
    #[arg(long = "image", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) images: Vec<PathBuf>,
    /// Show the usage of each turn: model calls, tokens, tool calls, bytes, cost
    #[arg(long)]
    pub(crate) stats: bool,
    /// Detail of the tool calls
    #[arg(long, value_enum, value_name = "DETAIL", default_value_t)]
    pub(crate) show: Show,
    /// Return after the interrupted turn of `session`.
    #[arg(skip)]
    pub(crate) only_resumes: bool,
}

impl Chat {
    /// Returns the arguments that continue the interrupted turn of a conversation and nothing else.
    pub(crate) fn resuming(session: SessionId) -> Self {
        Self {
            prompt: None,
            agent: None,
            continues: false,
            session: Some(session),
            images: Vec::new(),
            stats: false,
            show: Show::default(),
            only_resumes: true,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Show only calls of agents whose name contains TEXT; repeatable
    #[arg(long = "agent", value_name = "TEXT")]
    pub(crate) agents: Vec<String>,
    /// Show only calls of tools whose name contains TEXT; repeatable
    #[arg(long = "tool", value_name = "TEXT")]
    pub(crate) tools: Vec<String>,
    /// Show only calls in this state, such as running, ok, timeout, or live, ended, failed; repeatable
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<String>,
    /// Include arguments, results and messages, up to 4 KiB each
    #[arg(long)]
    pub(crate) content: bool,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Stop after this many of the shown calls have ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) calls: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// List the tools of the fleet's handlers, or all that an agent may use
    ///
    /// With --agent: its own tools, those of handlers, MCP servers and other agents, with their source and
    /// who serves them.
    #[command(after_help = "Examples:
  rockbot tools list
  rockbot --mcp mcp.json tools list --agent assistant
  rockbot --bus amqp://guest:guest@localhost:5672/%2f tools list --agent assistant --json")]
    List {
        /// List the tools that this agent may use
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Show a tool's definition
    Describe {
        /// Name of the tool
        name: String,
    },
    /// Show and approve the changed definition of a tool
    ///
    /// An agent with a `[pins]` store does not use a tool whose definition has changed, whether it comes
    /// from a tool handler or an MCP server. This approves the current definition, and no later one, for
    /// the agent `agent.name`.
    Approve {
        /// Name of the tool, as shown by --list
        #[arg(required_unless_present_any = ["all", "list"], conflicts_with_all = ["all", "list"])]
        name: Option<String>,
        /// Approve all pending tools
        #[arg(long, conflicts_with = "list")]
        all: bool,
        /// Show the pending tools without approving them
        #[arg(long)]
        list: bool,
    },
    /// Call a tool
    #[command(after_help = "Examples:
  rockbot tools call read_file path=README.md
  rockbot tools call search query=bus 'paths=[\"docs\"]'
  rockbot tools call read_file '{\"path\":\"README.md\"}'
  rockbot tools call write_file @arguments.json
  echo '{\"command\":\"ls\"}' | rockbot tools call bash -")]
    Call {
        /// Name of the tool
        name: String,
        /// Arguments: KEY=VALUE by the tool's schema, repeated for lists, or one JSON object, @FILE, or - for
        /// standard input [default: none]
        #[arg(value_name = "ARGUMENTS")]
        arguments: Vec<String>,
        /// Time limit of the call, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScriptCommand {
    /// Run a Python script in a local sandbox, in a container, or on a fleet
    ///
    /// The script's standard output and standard error are passed through. A summary with the exit code
    /// and the isolation follows on standard error.
    #[command(after_help = "Examples:
  rockbot script run report.py --input figures.csv
  echo 'print(6 * 7)' | rockbot script run -
  rockbot script run plot.py --package pandas --package numpy==2.1.0
  rockbot --bus amqp://guest:guest@localhost:5672/%2f script run report.py

Exit codes: 0 the script exited with 0, 1 it exited with another code or hit a limit, 64 invalid usage,
69 no runner is available, 75 timed out or overloaded")]
    Run(Run),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Path of the script, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Input for the script, in ROCKBOT_INPUT and in the file named by ROCKBOT_INPUT_FILE; - for standard
    /// input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// Where the script runs [default: the fleet with --bus, otherwise scripts.runner]
    #[arg(long, value_enum)]
    pub(crate) runner: Option<Runner>,
    /// Package to install, such as pandas==2.2.3; repeatable
    #[arg(long = "package", value_name = "PACKAGE")]
    pub(crate) packages: Vec<String>,
    /// Time limit of the script, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,
}

/// Place where a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runner {
    /// A sandbox on this machine
    Local,
    /// A Docker container on this machine
    Docker,
    /// A scripts manager of the fleet
    Bus,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Worker {
    /// Check that the workers of a pool keep what callers rely on
    ///
    /// Calls a tool of the pool many times, sends invalid requests, cancels and copies, and prints a table
    /// of the outcomes. Checks that need slow or large calls, or a permission that this user lacks, are
    /// skipped with the reason. Invalid requests become dead letters of the pool.
    #[command(after_help = "Examples:
  rockbot --bus amqp://… worker check tables --tool query_table \\
    --arguments '{\"csv\":\"n\\n1\",\"sql\":\"SELECT sum(n) FROM data\"}'
  rockbot --bus amqp://… worker check tables --tool query_table --arguments @short.json \\
    --slow-arguments @slow.json --large-arguments @large.json --drain-pid 4711

Exit codes: 0 no check failed, 1 a check failed, 64 invalid usage, 69 the pool has no worker")]
    Check(WorkerCheck),
}

#[derive(Debug, Args)]
pub(crate) struct WorkerCheck {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: PoolName,
    /// The tool to call [default: the first read-only tool of the pool]
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Arguments of a short call: a JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// Arguments of a call that takes at least 5 s
    #[arg(long, value_name = "JSON")]
    pub(crate) slow_arguments: Option<String>,
    /// Arguments of a call whose result is larger than 1 MiB
    #[arg(long, value_name = "JSON")]
    pub(crate) large_arguments: Option<String>,
    /// Process of the only worker of the pool, on this machine: terminates it as the last check
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(2..))]
    pub(crate) drain_pid: Option<i32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rest {
    /// Read a file of REST tools and the OpenAPI documents that it names, and report what they offer
    #[command(after_help = "Examples:
  rockbot rest check rest.json
  rockbot rest check rest.json --json

Exit codes: 0 all entries are valid, 1 an entry is not valid, 64 the file cannot be used. Operations
that cannot be offered are shown with the reason and do not change the exit code.")]
    Check {
        /// File of REST tools, such as rest.json
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// List the tools of the configured file
    List,
    /// Call a tool of the configured file in this process
    #[command(after_help = "Examples:
  ROCKBOT_REST__CONFIG=rest.json rockbot rest call weather '{\"city\":\"Berlin\"}'
  rockbot --config rockbot.toml rest call weather @arguments.json")]
    Call {
        /// Name of the tool
        name: String,
        /// Arguments: a JSON object, @FILE, or - for standard input [default: {}]
        arguments: Option<String>,
        /// Time limit of the call, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,
    },
}
