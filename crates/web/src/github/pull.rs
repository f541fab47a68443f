//! Pull requests: description, reviews, comments.

use futures_util::try_join;
use serde::Deserialize;

use super::{
    client::Session,
    document::{Document, GithubDocument, when},
    failure::GithubFailure,
    issue::{Label, Milestone, User, comments, milestone, name, names, write_comments},
    page::RepositoryName,
};
use crate::api::BoundedList;

/// Maximum number of pages of reviews and of review comments, of 100 each.
const MAX_PAGES: usize = 3;

#[derive(Deserialize)]
struct Pull {
    number: u64,
    title: Option<String>,
    state: Option<String>,
    #[serde(default)]
    draft: bool,
    merged_at: Option<String>,
    merged_by: Option<User>,
    user: Option<User>,
    created_at: Option<String>,
    updated_at: Option<String>,
    #[serde(default)]
    labels: BoundedList<Label, 100>,
    milestone: Option<Milestone>,
    html_url: Option<String>,
    body: Option<String>,
    comments: Option<u64>,
    base: Option<Branch>,
    head: Option<Branch>,
    commits: Option<u64>,
    changed_files: Option<u64>,
    additions: Option<u64>,
    deletions: Option<u64>,
}

#[derive(Deserialize)]
struct Branch {
    label: Option<String>,
}

#[derive(Deserialize)]
struct Review {
    user: Option<User>,
    state: Option<String>,
    body: Option<String>,
    submitted_at: Option<String>,
}

#[derive(Deserialize)]
struct ReviewComment {
    user: Option<User>,
    path: Option<String>,
    line: Option<u64>,
    original_line: Option<u64>,
    body: Option<String>,
    created_at: Option<String>,
}

/// Reads a pull request with its conversation.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read(
    session: &Session<'_>,
    repository: &RepositoryName,
    number: u64,
) -> Result<GithubDocument, GithubFailure> {
    let text = number.to_string();
    let path = ["repos", &repository.owner, &repository.name, "pulls", &text];
    let [reviews_path, comments_path] =
        ["reviews", "comments"].map(|last| [&path[..], &[last]].concat());
    let (pull, comments, reviews, review_comments) = try_join!(
        session.json::<Pull>(&path),
        comments(session, repository, number),
        session.list::<Review>(&reviews_path, MAX_PAGES),
        session.list::<ReviewComment>(&comments_path, MAX_PAGES),
    )?;
    let mut document = Document::new(&format!(
        "Pull request #{}: {} [{repository}]",
        pull.number,
        pull.title.as_deref().unwrap_or_default()
    ));
    write_fields(&mut document, &pull, repository);
    document.rule();
    document.body(pull.body.as_deref(), "(no description)");
    write_reviews(&mut document, &reviews.0);
    write_review_comments(&mut document, &review_comments.0);
    write_comments(&mut document, &comments.0, comments.1, pull.comments);
    if reviews.1 || review_comments.1 {
        document.line("[there are more reviews]");
    }
    Ok(document.finish())
}

fn write_fields(document: &mut Document, pull: &Pull, repository: &RepositoryName) {
    let label = |branch: &Option<Branch>| {
        let label = branch.as_ref().and_then(|branch| branch.label.clone());
        label.unwrap_or_else(|| "(deleted)".to_owned())
    };
    document.field("Repository", &repository.to_string());
    document.field("State", &state(pull));
    document.field("Branches", &format!("{} ← {}", label(&pull.base), label(&pull.head)));
    document.field("Author", name(pull.user.as_ref()));
    document.field("Created", &when(pull.created_at.as_deref()));
    document.field("Updated", &when(pull.updated_at.as_deref()));
    document.field("Labels", &names(&pull.labels));
    document.field("Milestone", milestone(pull.milestone.as_ref()));
    if let (Some(commits), Some(files)) = (pull.commits, pull.changed_files) {
        let (added, removed) = (pull.additions.unwrap_or(0), pull.deletions.unwrap_or(0));
        let changes = format!("{commits} commits, {files} files, +{added} −{removed} lines");
        document.field("Changes", &changes);
    }
    document.field("URL", pull.html_url.as_deref().unwrap_or_default());
}

fn state(pull: &Pull) -> String {
    if let Some(at) = pull.merged_at.as_deref() {
        return format!("merged by {}, {}", name(pull.merged_by.as_ref()), when(Some(at)));
    }
    let state = pull.state.as_deref().unwrap_or_default();
    if pull.draft { format!("{state} (draft)") } else { state.to_owned() }
}

fn write_reviews(document: &mut Document, reviews: &[Review]) {
    for review in reviews {
        let has_text = review.body.as_deref().is_some_and(|body| !body.trim().is_empty());
        let verdict = match review.state.as_deref().unwrap_or_default() {
            "APPROVED" => "approved",
            "CHANGES_REQUESTED" => "changes requested",
            "DISMISSED" => "dismissed",
            // The comments of such a review are listed with their lines.
            _ if !has_text => continue,
            _ => "commented",
        };
        let date = when(review.submitted_at.as_deref());
        document.heading(&format!("Review by {}, {date}: {verdict}", name(review.user.as_ref())));
        if has_text {
            document.body(review.body.as_deref(), "");
        }
    }
}

fn write_review_comments(document: &mut Document, comments: &[ReviewComment]) {
    for comment in comments {
        let path = comment.path.as_deref().unwrap_or_default();
        let line = comment.line.or(comment.original_line);
        let place = line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}"));
        let date = when(comment.created_at.as_deref());
        let title = format!("Comment on `{place}` by {}, {date}", name(comment.user.as_ref()));
        document.heading(&title);
        document.body(comment.body.as_deref(), "(empty)");
    }
}
