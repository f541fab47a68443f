//! Changes of pull requests and commits.

use super::{
    client::{Media, Session},
    document::{Document, GithubDocument},
    failure::GithubFailure,
    page::{DiffFormat, RepositoryName},
};

/// Limit of a diff, in bytes.
const MAX_BYTES: usize = 200 * 1024;

/// Reads changes: `kind` is `pulls` or `commits`, and `id` names one of them.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read(
    session: &Session<'_>,
    repository: &RepositoryName,
    kind: &str,
    id: &str,
    format: DiffFormat,
) -> Result<GithubDocument, GithubFailure> {
    let media = match format {
        DiffFormat::Diff => Media::Diff,
        DiffFormat::Patch => Media::Patch,
    };
    let path = ["repos", &repository.owner, &repository.name, kind, id];
    let response = session.text(&path, &[], media, MAX_BYTES).await?;
    let what = if kind == "pulls" { format!("pull request #{id}") } else { format!("commit {id}") };
    let mut document = Document::new(&format!("Changes of {what} [{repository}]"));
    let text = String::from_utf8_lossy(&response.body);
    let text = match text.rfind('\n') {
        Some(end) if response.truncated => &text[..end],
        _ => &text,
    };
    document.fenced("diff", text);
    if response.truncated {
        document.line(&format!("[cut: the changes are longer than {} KiB]", MAX_BYTES / 1024));
    }
    Ok(document.finish())
}
