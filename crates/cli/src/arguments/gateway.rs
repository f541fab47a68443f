//! Arguments of `rockbot gateway`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use rockbot_gateway::{FaceName, Right};

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Create, list and revoke the bearer tokens of programs
    #[command(subcommand)]
    Token(Token),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token and print it; it cannot be shown again
    ///
    /// The file has only its hash. A running gateway reads the file again within a second.
    #[command(after_help = "Examples:
  rockbot gateway token new open-webui --file tokens.toml --agent assistant
  rockbot gateway token new claude --file tokens.toml --face mcp --tool 'github__*' --tool read_file
  rockbot gateway token new partner --file tokens.toml --face a2a --agent support
  rockbot gateway token new grafana --file tokens.toml --face console --right watch --requests-per-minute 60")]
    New(NewToken),
    /// List the tokens, without their secrets
    List {
        #[command(flatten)]
        file: TokensFile,
    },
    /// Revoke a token
    Revoke {
        /// Name of the token
        name: String,
        #[command(flatten)]
        file: TokensFile,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewToken {
    /// Name of the program; 1 to 64 letters, digits, `.`, `_` and `-`
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) file: TokensFile,
    /// A face that it may use; repeatable
    #[arg(long = "face", value_enum, value_name = "FACE", default_values = ["openai"])]
    pub(crate) faces: Vec<Face>,
    /// A right; repeatable
    #[arg(long = "right", value_enum, value_name = "RIGHT", default_values = ["talk"])]
    pub(crate) rights: Vec<RightArgument>,
    /// Pattern for the agents that it may use; * matches any text; repeatable
    #[arg(long = "agent", value_name = "PATTERN", default_values = ["*"])]
    pub(crate) agents: Vec<String>,
    /// Pattern for the tools that it may call directly, those of MCP servers as SERVER__TOOL; repeatable
    /// [default: none]
    #[arg(long = "tool", value_name = "PATTERN")]
    pub(crate) tools: Vec<String>,
    /// Maximum number of requests per minute [default: no limit but that for messages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) requests_per_minute: Option<u32>,
}

/// The file of the tokens.
#[derive(Debug, Args)]
pub(crate) struct TokensFile {
    /// File of the tokens [default: gateway.tokens]
    #[arg(long = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) path: Option<PathBuf>,
}

/// A face of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Face {
    /// The console's REST API
    Console,
    /// The OpenAI-compatible API
    Openai,
    /// The MCP server
    Mcp,
    /// The A2A protocol
    A2a,
}

impl From<Face> for FaceName {
    fn from(face: Face) -> Self {
        match face {
            Face::Console => Self::Console,
            Face::Openai => Self::Openai,
            Face::Mcp => Self::Mcp,
            Face::A2a => Self::A2a,
        }
    }
}

/// A right of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RightArgument {
    /// Watch all calls, without their content
    Watch,
    /// Read arguments and results of all calls
    Content,
    /// Talk with agents
    Talk,
    /// Read, replay and purge dead letters
    Letters,
    /// Call tools by hand, those of --tool
    Call,
}

impl From<RightArgument> for Right {
    fn from(right: RightArgument) -> Self {
        match right {
            RightArgument::Watch => Self::Watch,
            RightArgument::Content => Self::Content,
            RightArgument::Talk => Self::Talk,
            RightArgument::Letters => Self::Letters,
            RightArgument::Call => Self::Call,
        }
    }
}
