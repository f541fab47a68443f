//! Arguments of `rockbot init`.

use clap::Args;

/// `rockbot init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Base URL of the model server, instead of searching for one
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Name of the model [default: the first that the server offers]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Take the first model server that is found, without a question
    #[arg(long)]
    pub(crate) yes: bool,
    /// Store the key of the environment in a file that only its owner can read
    #[arg(long)]
    pub(crate) save_key: bool,
    /// Do not try the model
    #[arg(long)]
    pub(crate) no_trial: bool,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}
