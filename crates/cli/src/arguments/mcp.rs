//! Arguments of `rockbot mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use rockbot_contracts::AgentName;

use super::agents::agent_name;

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the servers with their states
    List,
    /// Show a server and its tools, or the arguments of one tool
    Describe {
        /// Name of the server, case-insensitive
        server: String,
        /// Name of one of its tools
        tool: Option<String>,
    },
    /// Call a tool of a server
    #[command(after_help = "Examples:
  rockbot --mcp mcp.json mcp call time get_current_time '{\"timezone\":\"UTC\"}'
  rockbot --bus amqp://guest:guest@localhost:5672/%2f mcp call github search_code @query.json")]
    Call {
        /// Name of the server, case-insensitive
        server: String,
        /// The server's name of the tool
        tool: String,
        /// Arguments: a JSON object, @FILE, or - for standard input [default: {}]
        arguments: Option<String>,
        /// Time limit of the call, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,
    },
    /// List the resources of a server, or its templates of resources
    Resources {
        /// Name of the server, case-insensitive
        server: String,
        /// List templates: URIs with parameters in braces
        #[arg(long)]
        templates: bool,
    },
    /// Read a resource of a server
    #[command(after_help = "Examples:
  rockbot --mcp mcp.json mcp read docs file:///notes.md > notes.md")]
    Read {
        /// Name of the server, case-insensitive
        server: String,
        /// URI of the resource
        uri: String,
    },
    /// List the prompts of a server, or show one of them
    #[command(after_help = "Examples:
  rockbot --mcp mcp.json mcp prompt github
  rockbot --mcp mcp.json mcp prompt github review number=7")]
    Prompt {
        /// Name of the server, case-insensitive
        server: String,
        /// Name of one of its prompts
        prompt: Option<String>,
        /// Arguments of the prompt, as NAME=VALUE
        #[arg(value_name = "NAME=VALUE", requires = "prompt")]
        arguments: Vec<String>,
    },
    /// Add a server to the server file, or with --bus to a running fleet whose bridge allows it
    ///
    /// SERVER is a URL, a package with its version, a name in the registry of mcp.registry, or with --url
    /// or a command a name of your choice. The entry and its command are shown before the file is
    /// written. A server of a running fleet is removed when its bridge stops.
    #[command(after_help = "Examples:
  rockbot mcp add https://docs.example.com/mcp
  rockbot mcp add pypi:mcp-server-time@2026.1.26 --name time
  rockbot mcp add npm:@modelcontextprotocol/server-everything@2026.7.4
  rockbot mcp add io.github.owner/server --into mcp.json
  rockbot mcp add time -- uvx mcp-server-time@2026.1.26
  rockbot --bus amqp://… mcp add docs --url https://docs.example.com/mcp")]
    Add {
        /// URL, package or name of the server
        server: String,
        /// URL of a remote server
        #[arg(long, value_name = "URL", conflicts_with = "command")]
        url: Option<String>,
        /// Name of the entry [default: derived from the server]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Server file to add to [default: mcp.config, or mcp.json]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        into: Option<PathBuf>,
        /// Show the entry, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// Write the file without asking
        #[arg(long)]
        yes: bool,
        /// Command with its arguments; in a running fleet one that the bridge allows
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Search the registry of mcp.registry for servers
    #[command(after_help = "Examples:
  rockbot mcp search postgres
  ROCKBOT_MCP__REGISTRY=registry.json rockbot mcp search weather forecast")]
    Search {
        /// Words that the name or description contains
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Remove a server that was added at run time
    Remove {
        /// Name of the server, case-insensitive
        server: String,
    },
    /// Log in to a remote server with a browser
    ///
    /// The tokens are stored in a file that only the current user can read. Every bridge that runs as
    /// this user on this machine uses them.
    #[command(after_help = "Examples:
  rockbot --mcp mcp.json mcp login github
  rockbot --mcp mcp.json mcp login github --scope \"repo read:org\"")]
    Login {
        /// Name of the server, case-insensitive
        server: String,
        /// Scopes to request in addition to those that are granted, separated by spaces
        #[arg(long = "scope", value_name = "SCOPES", value_delimiter = ' ')]
        scopes: Vec<String>,
    },
    /// Connect to every server in a file and report the results
    #[command(after_help = "Examples:
  rockbot mcp check mcp.json

Exit codes: 0 all servers connected, 1 a server failed, 64 the file cannot be used, or an entry or a
setting of it is invalid")]
    Check {
        /// Server file, such as mcp.json
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Serve the fleet as an MCP server over standard input and output
    ///
    /// For MCP clients, which start this command: the tools of the fleet, and the agents that are named, become
    /// tools of the client. Without --bus, it embeds a fleet of its own.
    #[command(after_help = "Examples:
  rockbot --root . mcp serve
  rockbot --bus amqp://… mcp serve --agent assistant --deny bash --deny 'github__*'")]
    Serve(ServeMcp),
    /// Copy servers from the configuration files of MCP clients
    ///
    /// Without FILE, those of Claude Desktop, Claude Code, VS Code, Cursor, Windsurf, Gemini CLI, Zed,
    /// opencode, Codex and Copilot CLI are looked for in this folder and in your home folder. Servers that
    /// the server file has already are left as they are. Keys and tokens in the clients' files are copied
    /// as they are written.
    #[command(after_help = "Examples:
  rockbot mcp import --dry-run
  rockbot mcp import ~/.cursor/mcp.json --into mcp.json")]
    Import {
        /// Configuration files of MCP clients
        #[arg(value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        /// Server file to add to [default: mcp.config, or mcp.json]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        into: Option<PathBuf>,
        /// Show what would be added, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeMcp {
    /// Offer this agent of a running fleet as a tool; repeatable [default: those of mcp_server.agents]
    #[arg(long = "agent", value_name = "NAME", value_parser = agent_name)]
    pub(crate) agents: Vec<AgentName>,
    /// Permit only the tools with these names, with * for any text; repeatable [default: mcp_server.tools.allow]
    #[arg(long, value_name = "PATTERN")]
    pub(crate) allow: Vec<String>,
    /// Deny the tools with these names, in addition to mcp_server.tools.deny; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) deny: Vec<String>,
    /// Name of the client: processes with the same name share large results, conversations with agents, and the
    /// keys of calls [default: a new one for each process]
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
}
