//! Repositories: facts and README.

use futures_util::try_join;
use serde::Deserialize;

use super::{
    client::{Media, Session},
    document::{Document, GithubDocument, when},
    failure::GithubFailure,
    page::RepositoryName,
};
use crate::api::BoundedList;

/// Limit of a README, in bytes.
const MAX_README: usize = 512 * 1024;

#[derive(Deserialize)]
struct Repository {
    full_name: Option<String>,
    description: Option<String>,
    homepage: Option<String>,
    language: Option<String>,
    #[serde(default)]
    topics: BoundedList<String, 100>,
    stargazers_count: Option<u64>,
    forks_count: Option<u64>,
    open_issues_count: Option<u64>,
    license: Option<License>,
    default_branch: Option<String>,
    pushed_at: Option<String>,
    #[serde(default)]
    archived: bool,
    html_url: Option<String>,
}

#[derive(Deserialize)]
struct License {
    spdx_id: Option<String>,
    name: Option<String>,
}

/// Reads a repository.
///
/// # Errors
/// See [`GithubFailure`].
pub(super) async fn read(
    session: &Session<'_>,
    name: &RepositoryName,
) -> Result<GithubDocument, GithubFailure> {
    let path = ["repos", &name.owner, &name.name];
    let readme_path = [&path[..], &["readme"]].concat();
    let readme = async {
        match session.text(&readme_path, &[], Media::Raw, MAX_README).await {
            Ok(response) => Ok(Some(response)),
            Err(GithubFailure::NotFound { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    };
    let (repository, readme) = try_join!(session.json::<Repository>(&path), readme)?;
    let full_name = repository.full_name.clone().unwrap_or_else(|| name.to_string());
    let mut document = Document::new(&full_name);
    write_fields(&mut document, &repository);
    document.rule();
    match readme {
        Some(response) => {
            document.body(Some(&String::from_utf8_lossy(&response.body)), "(the README is empty)");
            if response.truncated {
                let limit = MAX_README / 1024;
                document.line(&format!("[cut: the README is longer than {limit} KiB]"));
            }
        }
        None => document.line("(no README)"),
    }
    Ok(document.finish())
}

fn write_fields(document: &mut Document, repository: &Repository) {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let license = repository.license.as_ref().and_then(|license| {
        let id = license.spdx_id.as_deref().filter(|id| *id != "NOASSERTION");
        id.or(license.name.as_deref())
    });
    document.field("Description", repository.description.as_deref().unwrap_or_default());
    if repository.archived {
        document.field("State", "archived");
    }
    document.field("Topics", &repository.topics.join(", "));
    document.field("Language", repository.language.as_deref().unwrap_or_default());
    document.field("Stars", &number(repository.stargazers_count));
    document.field("Forks", &number(repository.forks_count));
    document.field("Open issues and pull requests", &number(repository.open_issues_count));
    document.field("License", license.unwrap_or_default());
    document.field("Default branch", repository.default_branch.as_deref().unwrap_or_default());
    document.field("Last push", &when(repository.pushed_at.as_deref()));
    document.field("Homepage", repository.homepage.as_deref().unwrap_or_default());
    document.field("URL", repository.html_url.as_deref().unwrap_or_default());
}
