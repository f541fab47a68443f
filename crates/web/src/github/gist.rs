//! Gists.

use serde::Deserialize;

use super::{
    client::Session,
    document::{Document, GithubDocument, when},
    failure::GithubFailure,
    issue::{User, name},
};
use crate::api::BoundedMap;

#[derive(Deserialize)]
struct Gist {
    description: Option<String>,
    owner: Option<User>,
    created_at: Option<String>,
    updated_at: Option<String>,
    html_url: Option<String>,
    comments: Option<u64>,
    #[serde(default)]
    files: BoundedMap<Option<File>, 300>,
}

#[derive(Deserialize)]
struct File {
    content: Option<String>,
    #[serde(default)]
    truncated: bool,
}

/// Reads a gist with its files.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read(session: &Session<'_>, id: &str) -> Result<GithubDocument, GithubFailure> {
    let gist: Gist = session.json(&["gists", id]).await?;
    let description = gist.description.as_deref().filter(|text| !text.trim().is_empty());
    let mut document = Document::new(&format!("Gist: {}", description.unwrap_or(id)));
    document.field("Author", name(gist.owner.as_ref()));
    document.field("Created", &when(gist.created_at.as_deref()));
    document.field("Updated", &when(gist.updated_at.as_deref()));
    document.field("Comments", &gist.comments.unwrap_or(0).to_string());
    document.field("URL", gist.html_url.as_deref().unwrap_or_default());
    document.rule();
    for (path, file) in gist.files.iter() {
        document.heading(path);
        let Some(file) = file else { continue };
        let content = file.content.as_deref().unwrap_or_default();
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        if extension.eq_ignore_ascii_case("md") {
            document.body(Some(content), "(empty)");
        } else {
            let is_plain =
                extension.len() <= 12 && extension.bytes().all(|b| b.is_ascii_alphanumeric());
            document.fenced(if is_plain { extension } else { "" }, content);
        }
        if file.truncated {
            document.line("[the file is longer]");
            document.line("");
        }
    }
    Ok(document.finish())
}
