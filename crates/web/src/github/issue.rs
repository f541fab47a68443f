//! Issues, and the comments of issues and pull requests.

use serde::Deserialize;

use super::{
    client::Session,
    document::{Document, GithubDocument, when},
    failure::GithubFailure,
    page::RepositoryName,
};
use crate::api::BoundedList;

/// Maximum number of pages of comments, of 100 each.
const MAX_PAGES: usize = 3;

/// An issue. A pull request is an issue, too.
#[derive(Deserialize)]
pub(super) struct Issue {
    number: u64,
    title: Option<String>,
    state: Option<String>,
    state_reason: Option<String>,
    user: Option<User>,
    created_at: Option<String>,
    updated_at: Option<String>,
    #[serde(default)]
    labels: BoundedList<Label, 100>,
    milestone: Option<Milestone>,
    html_url: Option<String>,
    body: Option<String>,
    comments: Option<u64>,
    pull_request: Option<serde::de::IgnoredAny>,
}

/// A user. Deleted ones are absent.
#[derive(Deserialize)]
pub(super) struct User {
    login: Option<String>,
}

/// A label: an object, or in old responses a text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Label {
    /// An object.
    Object {
        /// Name.
        name: Option<String>,
    },
    /// A text.
    Name(String),
}

/// A milestone.
#[derive(Deserialize)]
pub(super) struct Milestone {
    title: Option<String>,
}

/// A comment.
#[derive(Deserialize)]
pub(super) struct Comment {
    user: Option<User>,
    created_at: Option<String>,
    body: Option<String>,
}

impl Issue {
    /// Requests an issue.
    ///
    /// # Errors
    /// See [`GithubFailure`].
    pub(super) async fn request(
        session: &Session<'_>,
        repository: &RepositoryName,
        number: u64,
    ) -> Result<Self, GithubFailure> {
        let number = number.to_string();
        session.json(&["repos", &repository.owner, &repository.name, "issues", &number]).await
    }

    /// Returns `true` if it is a pull request.
    pub(super) fn is_pull(&self) -> bool {
        self.pull_request.is_some()
    }

    /// Requests the comments, and writes the page.
    ///
    /// # Errors
    /// See [`GithubFailure`].
    pub(super) async fn read(
        self,
        session: &Session<'_>,
        repository: &RepositoryName,
    ) -> Result<GithubDocument, GithubFailure> {
        let (comments, has_more) = if self.comments == Some(0) {
            (Vec::new(), false)
        } else {
            comments(session, repository, self.number).await?
        };
        let title = self.title.as_deref().unwrap_or_default();
        let mut document =
            Document::new(&format!("Issue #{}: {title} [{repository}]", self.number));
        document.field("Repository", &repository.to_string());
        document.field("State", &self.state());
        document.field("Author", name(self.user.as_ref()));
        document.field("Created", &when(self.created_at.as_deref()));
        document.field("Updated", &when(self.updated_at.as_deref()));
        document.field("Labels", &names(&self.labels));
        document.field("Milestone", milestone(self.milestone.as_ref()));
        document.field("URL", self.html_url.as_deref().unwrap_or_default());
        document.rule();
        document.body(self.body.as_deref(), "(no description)");
        write_comments(&mut document, &comments, has_more, self.comments);
        Ok(document.finish())
    }

    fn state(&self) -> String {
        let state = self.state.as_deref().unwrap_or_default();
        match self.state_reason.as_deref() {
            Some(reason) if !reason.is_empty() => format!("{state} ({})", reason.replace('_', " ")),
            _ => state.to_owned(),
        }
    }
}

/// Requests the comments of an issue or pull request. Returns whether there are more.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn comments(
    session: &Session<'_>,
    repository: &RepositoryName,
    number: u64,
) -> Result<(Vec<Comment>, bool), GithubFailure> {
    let number = number.to_string();
    let path = ["repos", &repository.owner, &repository.name, "issues", &number, "comments"];
    session.list(&path, MAX_PAGES).await
}

/// Writes comments, each below a heading.
pub(super) fn write_comments(
    document: &mut Document,
    comments: &[Comment],
    has_more: bool,
    total: Option<u64>,
) {
    for comment in comments {
        let date = when(comment.created_at.as_deref());
        document.heading(&format!("Comment by {}, {date}", name(comment.user.as_ref())));
        document.body(comment.body.as_deref(), "(empty)");
    }
    if has_more {
        let total = total.map_or_else(String::new, |total| format!(" of {total}"));
        document.line(&format!("[the first {}{total} comments]", comments.len()));
    }
}

/// Returns the login of a user.
pub(super) fn name(user: Option<&User>) -> &str {
    user.and_then(|user| user.login.as_deref()).unwrap_or("ghost")
}

/// Returns the names of labels.
pub(super) fn names(labels: &[Label]) -> String {
    let names = labels.iter().filter_map(|label| match label {
        Label::Object { name } => name.as_deref(),
        Label::Name(name) => Some(name),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the title of a milestone.
pub(super) fn milestone(milestone: Option<&Milestone>) -> &str {
    milestone.and_then(|milestone| milestone.title.as_deref()).unwrap_or_default()
}
