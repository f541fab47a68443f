//! Releases.

use serde::Deserialize;

use super::{
    client::{Media, Session, parsed},
    document::{Document, GithubDocument, size, when},
    failure::GithubFailure,
    issue::{User, name},
    page::RepositoryName,
};
use crate::{api::BoundedList, one_line::one_line};

/// Number of releases in a list.
const LISTED: usize = 10;
/// Limit of the response, in bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of files that are shown for a release.
const MAX_FILES: usize = 100;

#[derive(Deserialize)]
struct Release {
    tag_name: Option<String>,
    name: Option<String>,
    author: Option<User>,
    published_at: Option<String>,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    prerelease: bool,
    body: Option<String>,
    html_url: Option<String>,
    #[serde(default)]
    assets: BoundedList<Asset, MAX_FILES>,
}

#[derive(Deserialize)]
struct Asset {
    name: Option<String>,
    size: Option<u64>,
    browser_download_url: Option<String>,
}

/// Reads the latest releases.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read_all(
    session: &Session<'_>,
    repository: &RepositoryName,
) -> Result<GithubDocument, GithubFailure> {
    let path = ["repos", &repository.owner, &repository.name, "releases"];
    let response =
        session.text(&path, &[("per_page", &LISTED.to_string())], Media::Json, MAX_BYTES).await?;
    let releases: BoundedList<Release, LISTED> = parsed(&response)?;
    let mut document = Document::new(&format!("Releases [{repository}]"));
    for release in releases.iter() {
        document.heading(title(release));
        write(&mut document, release);
    }
    if releases.is_empty() {
        document.line("(no releases)");
    }
    Ok(document.finish())
}

/// Reads the release of a tag.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read(
    session: &Session<'_>,
    repository: &RepositoryName,
    tag: &str,
) -> Result<GithubDocument, GithubFailure> {
    let path = ["repos", &repository.owner, &repository.name, "releases", "tags", tag];
    let release: Release = session.json(&path).await?;
    let mut document = Document::new(&format!("Release {} [{repository}]", title(&release)));
    write(&mut document, &release);
    Ok(document.finish())
}

fn title(release: &Release) -> &str {
    let name = release.name.as_deref().filter(|name| !name.trim().is_empty());
    name.or(release.tag_name.as_deref()).unwrap_or("(no name)")
}

fn write(document: &mut Document, release: &Release) {
    let kind = match (release.draft, release.prerelease) {
        (true, _) => "draft",
        (false, true) => "prerelease",
        (false, false) => "",
    };
    document.field("Tag", release.tag_name.as_deref().unwrap_or_default());
    document.field("Kind", kind);
    document.field("Author", name(release.author.as_ref()));
    document.field("Published", &when(release.published_at.as_deref()));
    document.field("URL", release.html_url.as_deref().unwrap_or_default());
    document.line("");
    document.body(release.body.as_deref(), "(no notes)");
    for asset in release.assets.iter() {
        let name = one_line(asset.name.as_deref().unwrap_or_default(), 300).replace(']', "\\]");
        let url = one_line(asset.browser_download_url.as_deref().unwrap_or_default(), 2_000);
        let url = url.replace('(', "%28").replace(')', "%29");
        document.line(&format!("- [{name}]({url}), {}", size(asset.size.unwrap_or(0))));
    }
    if release.assets.len() == MAX_FILES {
        document.line(&format!("[the first {MAX_FILES} files]"));
    }
    if !release.assets.is_empty() {
        document.line("");
    }
}
