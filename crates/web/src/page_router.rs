//! Pages that are read in another way than by their address.

use futures_util::future::BoxFuture;
use rockbot_tools::ToolFailure;
use tokio::time::Instant;
use url::Url;

/// A page that a router has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedPage {
    /// Title on one line.
    pub title: String,
    /// Content in Markdown.
    pub markdown: String,
}

/// Reads pages of sites that offer something better than HTML, such as an API.
///
/// It gets the address of a page and the target of each redirect, before anything is sent there.
pub trait PageRouter: Send + Sync + 'static {
    /// Begins to read a page, or returns `None` for a page that it does not know. The future ends by the
    /// deadline; `Ok(None)` means that the page itself should be read.
    ///
    /// # Errors
    /// The failure ends the call.
    ///
    /// # Cancellation
    /// Dropping the future abandons the page.
    fn route<'a>(
        &'a self,
        url: &Url,
        deadline: Instant,
    ) -> Option<BoxFuture<'a, Result<Option<RoutedPage>, ToolFailure>>>;
}
