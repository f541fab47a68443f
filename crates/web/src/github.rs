//! Pages of GitHub as Markdown, through its API.
//!
//! [`route`] recognizes the URLs of pages that the API has: issues, pull requests, diffs, files, folders,
//! repositories, releases and gists. [`Github`] reads such a page. The token is sent to the API's origin
//! only.

mod client;
mod content;
mod diff;
mod document;
mod etag_cache;
mod failure;
mod gist;
mod issue;
mod page;
mod pull;
mod reader;
mod release;
mod repository;
mod section;
#[cfg(test)]
mod tests;

pub use document::GithubDocument;
pub use failure::GithubFailure;
pub use page::{DiffFormat, GithubPage, RepositoryName, route};
pub use reader::Github;
pub use section::GithubSection;
