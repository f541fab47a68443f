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

/// The outcome of reading a page by a router.
#[derive(Debug)]
pub enum RouteOutcome {
    /// The router has read the page.
    Page(RoutedPage),
    /// The router does not have the page. The page itself is read.
    Unknown,
    /// The router failed. The page itself is read, and the failure is reported.
    Failed(RouteFailure),
}

/// A failure of a router whose page can be read in the usual way.
#[derive(Debug)]
pub struct RouteFailure {
    /// Note to the model beside the page, without a period.
    pub note: String,
    /// Failure of the call if the page itself cannot be read either.
    pub failure: ToolFailure,
}

/// Reads pages of sites that offer something better than HTML, such as an API.
///
/// It gets the address of a page and the target of each redirect, before anything is sent there.
pub trait PageRouter: Send + Sync + 'static {
    /// Begins to read a page, or returns `None` for a page that it does not know. The future ends by the
    /// deadline.
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
    ) -> Option<BoxFuture<'a, Result<RouteOutcome, ToolFailure>>>;
}
