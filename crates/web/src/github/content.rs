//! Files and folders.
//!
//! A URL does not show where a reference such as `feature/x` ends and the path begins. The first segment
//! is tried as the reference; if there is no such page, branches and tags are searched for a longer one.

use serde::Deserialize;

use super::{
    client::{AcceptedResponse, Media, Session, parsed},
    document::{Document, GithubDocument, size},
    failure::GithubFailure,
    page::RepositoryName,
};
use crate::{api::BoundedList, one_line::one_line};

/// Limit of a file, in bytes.
const MAX_FILE: usize = 768 * 1024;
/// Limit of a listing, in bytes.
const MAX_LISTING: usize = 4 * 1024 * 1024;
/// Maximum number of entries of a folder, by the API's limit.
const MAX_ENTRIES: usize = 1_000;
/// Beginning of a file that is examined for binary data, in bytes.
const PROBE: usize = 8 * 1024;

#[derive(Deserialize)]
struct Entry {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    size: Option<u64>,
    html_url: Option<String>,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(rename = "ref")]
    name: String,
}

/// The kind of content that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file: a path follows the reference.
    File,
    /// A folder: the path may be empty.
    Folder,
}

/// Reads a file or folder; `segments` are reference and path.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read(
    session: &Session<'_>,
    repository: &RepositoryName,
    segments: &[String],
    kind: Kind,
) -> Result<GithubDocument, GithubFailure> {
    let not_found = match read_at(session, repository, segments, 1, kind).await {
        Err(failure @ GithubFailure::NotFound { .. }) => failure,
        other => return other,
    };
    match reference_length(session, repository, segments, kind).await? {
        Some(length) => read_at(session, repository, segments, length, kind).await,
        None => Err(not_found),
    }
}

/// Returns the number of segments of the longest branch or tag that the segments begin with.
async fn reference_length(
    session: &Session<'_>,
    repository: &RepositoryName,
    segments: &[String],
    kind: Kind,
) -> Result<Option<usize>, GithubFailure> {
    let longest = segments.len() - usize::from(kind == Kind::File);
    let [first, second, ..] = segments else { return Ok(None) };
    if longest < 2 {
        return Ok(None);
    }
    for namespace in ["heads", "tags"] {
        let path = ["repos", &repository.owner, &repository.name, "git", "matching-refs"];
        let path = [&path[..], &[namespace, first.as_str(), second.as_str()]].concat();
        let (references, _) = session.list::<Reference>(&path, 1).await?;
        let is_reference = |length: &usize| {
            let name = format!("refs/{namespace}/{}", segments[..*length].join("/"));
            references.iter().any(|reference| reference.name == name)
        };
        if let Some(length) = (2..=longest).rev().find(is_reference) {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

async fn read_at(
    session: &Session<'_>,
    repository: &RepositoryName,
    segments: &[String],
    reference_length: usize,
    kind: Kind,
) -> Result<GithubDocument, GithubFailure> {
    let (reference, path) = segments.split_at(reference_length);
    let reference = reference.join("/");
    let mut api_path = vec!["repos", &repository.owner, &repository.name, "contents"];
    api_path.extend(path.iter().map(String::as_str));
    let (media, max_bytes) = match kind {
        Kind::File => (Media::Raw, MAX_FILE),
        Kind::Folder => (Media::Json, MAX_LISTING),
    };
    let response = session.text(&api_path, &[("ref", &reference)], media, max_bytes).await?;
    let path = path.join("/");
    let title =
        format!("{} [{repository}, {reference}]", if path.is_empty() { "/" } else { &path });
    if kind == Kind::File && !response.is_json {
        return Ok(file(&title, &path, &response));
    }
    if let Ok(entries) = parsed::<BoundedList<Entry, MAX_ENTRIES>>(&response) {
        return Ok(folder(&title, entries.into()));
    }
    // The URL of a folder names a file.
    let response = session.text(&api_path, &[("ref", &reference)], Media::Raw, MAX_FILE).await?;
    Ok(file(&title, &path, &response))
}

fn file(title: &str, path: &str, response: &AcceptedResponse) -> GithubDocument {
    let mut document = Document::new(title);
    let body = &response.body;
    if body[..body.len().min(PROBE)].contains(&0) {
        let more = if response.truncated { "more than " } else { "" };
        let size = size(u64::try_from(body.len()).unwrap_or(u64::MAX));
        document.line(&format!("This is a binary file of {more}{size}; it cannot be shown."));
        return document.finish();
    }
    let text = String::from_utf8_lossy(body);
    let extension = path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let extension = extension.map_or("", |(_, extension)| extension).to_ascii_lowercase();
    if matches!(extension.as_str(), "md" | "markdown" | "mdx") {
        document.body(Some(&text), "(empty)");
    } else {
        let is_plain =
            extension.len() <= 12 && extension.bytes().all(|b| b.is_ascii_alphanumeric());
        document.fenced(if is_plain { &extension } else { "" }, &text);
    }
    if response.truncated {
        document.line(&format!("[cut: the file is longer than {} KiB]", MAX_FILE / 1024));
    }
    document.finish()
}

fn folder(title: &str, mut entries: Vec<Entry>) -> GithubDocument {
    let is_file = |entry: &Entry| entry.kind.as_deref() != Some("dir");
    entries.sort_by(|a, b| (is_file(a), &a.name).cmp(&(is_file(b), &b.name)));
    let mut document = Document::new(title);
    for entry in &entries {
        let name = one_line(entry.name.as_deref().unwrap_or_default(), 300).replace(']', "\\]");
        let url = one_line(entry.html_url.as_deref().unwrap_or_default(), 2_000);
        let url = url.replace('(', "%28").replace(')', "%29");
        document.line(&match entry.kind.as_deref() {
            Some("dir") => format!("- [{name}/]({url})"),
            Some("file") => format!("- [{name}]({url}), {}", size(entry.size.unwrap_or(0))),
            other => format!("- [{name}]({url}), {}", one_line(other.unwrap_or("unknown"), 20)),
        });
    }
    if entries.is_empty() {
        document.line("(empty)");
    }
    document.finish()
}
