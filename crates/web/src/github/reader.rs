//! Reading pages.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_tools::ToolFailure;
use secrecy::ExposeSecret;
use tokio::time::Instant;
use tracing::debug;
use url::Url;

use super::{
    client::ApiClient,
    content::{self, Kind},
    diff,
    document::GithubDocument,
    failure::GithubFailure,
    gist,
    issue::Issue,
    page::{GithubPage, route},
    pull, release, repository,
    section::GithubSection,
};
use crate::{
    api::{ApiTransport, base_url},
    page_router::{PageRouter, RouteOutcome, RoutedPage},
    secret::header,
};

/// Reads pages of GitHub.
pub struct Github {
    client: ApiClient,
}

impl Github {
    /// Creates a reader. `environment` returns the value of a variable.
    ///
    /// # Errors
    /// All invalid values of the section, as messages for the operator.
    pub fn from_section(
        section: &GithubSection,
        environment: impl Fn(&str) -> Option<String>,
        transport: Arc<dyn ApiTransport>,
    ) -> Result<Self, Vec<String>> {
        let problems = section.validate(&environment);
        let base = match base_url(&section.api_url, true) {
            Ok(base) if problems.is_empty() => base,
            _ => return Err(problems),
        };
        let token = section.token(&environment);
        let token = token.and_then(|token| header(&format!("Bearer {}", token.expose_secret())));
        Ok(Self { client: ApiClient::new(transport, base, token) })
    }

    /// Begins to read the page that a URL shows, or returns `None` if the API does not have it.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    ///
    /// # Cancellation
    /// Dropping the future ends the requests.
    #[must_use]
    pub fn open(
        &self,
        url: &Url,
        deadline: Instant,
    ) -> Option<BoxFuture<'_, Result<GithubDocument, GithubFailure>>> {
        let page = route(url)?;
        Some(Box::pin(async move { self.read(&page, deadline).await }))
    }

    /// Reads a page as Markdown. When it fails, [`GithubFailure::allows_page`] says whether the page
    /// itself may be fetched instead.
    ///
    /// # Errors
    /// See [`GithubFailure`].
    ///
    /// # Cancellation
    /// Dropping the future ends the requests.
    pub async fn read(
        &self,
        page: &GithubPage,
        deadline: Instant,
    ) -> Result<GithubDocument, GithubFailure> {
        let session = self.client.session(deadline);
        match page {
            GithubPage::Issue { repository, number } => {
                let issue = Issue::request(&session, repository, *number).await?;
                if issue.is_pull() {
                    return pull::read(&session, repository, *number).await;
                }
                issue.read(&session, repository).await
            }
            GithubPage::Pull { repository, number } => {
                pull::read(&session, repository, *number).await
            }
            GithubPage::PullDiff { repository, number, format } => {
                diff::read(&session, repository, "pulls", &number.to_string(), *format).await
            }
            GithubPage::Commit { repository, id, format } => {
                diff::read(&session, repository, "commits", id, *format).await
            }
            GithubPage::File { repository, segments } => {
                content::read(&session, repository, segments, Kind::File).await
            }
            GithubPage::Folder { repository, segments } => {
                content::read(&session, repository, segments, Kind::Folder).await
            }
            GithubPage::Repository { repository } => repository::read(&session, repository).await,
            GithubPage::Releases { repository } => release::read_all(&session, repository).await,
            GithubPage::Release { repository, tag } => {
                release::read(&session, repository, tag).await
            }
            GithubPage::Gist { id } => gist::read(&session, id).await,
        }
    }
}

/// Omits the token.
impl fmt::Debug for Github {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Github").finish_non_exhaustive()
    }
}

impl PageRouter for Github {
    fn route<'a>(
        &'a self,
        url: &Url,
        deadline: Instant,
    ) -> Option<BoxFuture<'a, Result<RouteOutcome, ToolFailure>>> {
        let opened = self.open(url, deadline)?;
        Some(Box::pin(async move {
            match opened.await {
                Ok(GithubDocument { title, markdown }) => {
                    Ok(RouteOutcome::Page(RoutedPage { title, markdown }))
                }
                Err(failure) if failure.allows_page() => {
                    debug!(%failure, "page of GitHub is read without the API");
                    let failed = failure.into_route_failure();
                    Ok(failed.map_or(RouteOutcome::Unknown, RouteOutcome::Failed))
                }
                Err(failure) => Err(failure.into()),
            }
        }))
    }
}
