//! URLs of pages that the API has.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

/// Longest URL that is recognized, in bytes.
const MAX_URL: usize = 2_000;
/// Maximum number of path segments.
const MAX_SEGMENTS: usize = 64;

/// First segments of pages that are not repositories.
const RESERVED: [&str; 45] = [
    "about",
    "account",
    "apps",
    "blog",
    "codespaces",
    "collections",
    "contact",
    "copilot",
    "customer-stories",
    "dashboard",
    "discussions",
    "edu",
    "enterprise",
    "enterprises",
    "events",
    "explore",
    "features",
    "github-copilot",
    "issues",
    "join",
    "login",
    "logout",
    "marketplace",
    "models",
    "new",
    "notifications",
    "organizations",
    "orgs",
    "partners",
    "pricing",
    "pulls",
    "readme",
    "resources",
    "search",
    "security",
    "sessions",
    "settings",
    "signup",
    "site",
    "solutions",
    "sponsors",
    "stars",
    "topics",
    "trending",
    "users",
];

/// A page that the API has. Text is percent-decoded and not trusted: it names what to request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GithubPage {
    /// An issue.
    Issue {
        /// Repository.
        repository: RepositoryName,
        /// Number.
        number: u64,
    },
    /// A pull request: conversation and reviews.
    Pull {
        /// Repository.
        repository: RepositoryName,
        /// Number.
        number: u64,
    },
    /// The changes of a pull request.
    PullDiff {
        /// Repository.
        repository: RepositoryName,
        /// Number.
        number: u64,
        /// Format.
        format: DiffFormat,
    },
    /// The changes of a commit.
    Commit {
        /// Repository.
        repository: RepositoryName,
        /// Commit id, 7 to 64 hexadecimal digits.
        id: String,
        /// Format.
        format: DiffFormat,
    },
    /// A file. The reference may span several segments.
    File {
        /// Repository.
        repository: RepositoryName,
        /// Reference and path, at least two segments.
        segments: Vec<String>,
    },
    /// A folder. The reference may span several segments.
    Folder {
        /// Repository.
        repository: RepositoryName,
        /// Reference and path, at least one segment.
        segments: Vec<String>,
    },
    /// A repository, with its README.
    Repository {
        /// Repository.
        repository: RepositoryName,
    },
    /// The latest releases.
    Releases {
        /// Repository.
        repository: RepositoryName,
    },
    /// A release.
    Release {
        /// Repository.
        repository: RepositoryName,
        /// Tag.
        tag: String,
    },
    /// A gist.
    Gist {
        /// Id, 5 to 64 hexadecimal digits.
        id: String,
    },
}

/// Owner and name of a repository, with their case: letters, digits, `.`, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryName {
    /// User or organization.
    pub owner: String,
    /// Name.
    pub name: String,
}

/// Formats of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffFormat {
    /// A unified diff.
    Diff,
    /// Patches with the messages of the commits.
    Patch,
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Returns the page that a URL shows, if the API has it. Query and fragment are ignored.
#[must_use]
pub fn route(url: &Url) -> Option<GithubPage> {
    let is_web = matches!(url.scheme(), "http" | "https") && url.port().is_none();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    if !is_web || has_credentials || url.as_str().len() > MAX_URL {
        return None;
    }
    let segments = segments(url)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match url.host_str()?.trim_end_matches('.') {
        "github.com" | "www.github.com" => page(&segments),
        "raw.githubusercontent.com" => raw_file(&segments),
        "gist.github.com" => gist(&segments),
        _ => None,
    }
}

/// Returns the decoded segments of the path, without an empty one at the end.
fn segments(url: &Url) -> Option<Vec<String>> {
    let path = url.path().strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut segments = Vec::new();
    for segment in path.split('/') {
        let segment = percent_decode_str(segment).decode_utf8().ok()?;
        let is_step = matches!(&*segment, "" | "." | "..");
        if is_step || segment.chars().any(char::is_control) || segments.len() == MAX_SEGMENTS {
            return None;
        }
        segments.push(segment.into_owned());
    }
    Some(segments)
}

fn page(segments: &[&str]) -> Option<GithubPage> {
    let [owner, name, rest @ ..] = segments else { return None };
    let repository = repository(owner, name)?;
    Some(match rest {
        [] => GithubPage::Repository { repository },
        ["issues", number] => GithubPage::Issue { repository, number: self::number(number)? },
        ["pull", number] => pull(repository, number)?,
        ["pull", number, "files" | "changes"] => GithubPage::PullDiff {
            repository,
            number: self::number(number)?,
            format: DiffFormat::Diff,
        },
        ["commit", id] => commit(repository, id)?,
        ["blob" | "raw", rest @ ..] if rest.len() >= 2 => file(repository, rest),
        ["tree", rest @ ..] if !rest.is_empty() => {
            GithubPage::Folder { repository, segments: owned(rest) }
        }
        ["releases"] => GithubPage::Releases { repository },
        ["releases", "tag", tag @ ..] if !tag.is_empty() => {
            GithubPage::Release { repository, tag: tag.join("/") }
        }
        _ => return None,
    })
}

fn repository(owner: &str, name: &str) -> Option<RepositoryName> {
    let name = name.strip_suffix(".git").unwrap_or(name);
    let is_name = |text: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (1..=100).contains(&text.len()) && !matches!(text, "." | "..") && text.chars().all(is_valid)
    };
    let is_reserved = RESERVED.contains(&owner.to_ascii_lowercase().as_str());
    (is_name(owner) && is_name(name) && !is_reserved)
        .then(|| RepositoryName { owner: owner.to_owned(), name: name.to_owned() })
}

fn pull(repository: RepositoryName, segment: &str) -> Option<GithubPage> {
    let (number, format) = format(segment);
    let number = self::number(number)?;
    Some(match format {
        Some(format) => GithubPage::PullDiff { repository, number, format },
        None => GithubPage::Pull { repository, number },
    })
}

fn commit(repository: RepositoryName, segment: &str) -> Option<GithubPage> {
    let (id, format) = format(segment);
    let format = format.unwrap_or(DiffFormat::Diff);
    is_hex(id, 7).then(|| GithubPage::Commit { repository, id: id.to_owned(), format })
}

fn format(segment: &str) -> (&str, Option<DiffFormat>) {
    if let Some(name) = segment.strip_suffix(".diff") {
        (name, Some(DiffFormat::Diff))
    } else if let Some(name) = segment.strip_suffix(".patch") {
        (name, Some(DiffFormat::Patch))
    } else {
        (segment, None)
    }
}

fn file(repository: RepositoryName, segments: &[&str]) -> GithubPage {
    // The long form of a reference.
    let segments = match segments {
        ["refs", "heads" | "tags", rest @ ..] if rest.len() >= 2 => rest,
        all => all,
    };
    GithubPage::File { repository, segments: owned(segments) }
}

fn raw_file(segments: &[&str]) -> Option<GithubPage> {
    let [owner, name, rest @ ..] = segments else { return None };
    let repository = repository(owner, name)?;
    (rest.len() >= 2).then(|| file(repository, rest))
}

fn gist(segments: &[&str]) -> Option<GithubPage> {
    let ([id] | [_, id]) = segments else { return None };
    is_hex(id, 5).then(|| GithubPage::Gist { id: (*id).to_owned() })
}

fn number(text: &str) -> Option<u64> {
    let is_plain = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten().filter(|number| *number > 0)
}

fn is_hex(text: &str, min: usize) -> bool {
    (min..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn owned(segments: &[&str]) -> Vec<String> {
    segments.iter().map(|segment| (*segment).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(url: &str) -> String {
        match route(&Url::parse(url).expect("a URL")) {
            None => "-".to_owned(),
            Some(GithubPage::Issue { repository, number }) => {
                format!("issue {repository} {number}")
            }
            Some(GithubPage::Pull { repository, number }) => format!("pull {repository} {number}"),
            Some(GithubPage::PullDiff { repository, number, format }) => {
                format!("changes {repository} {number} {format:?}")
            }
            Some(GithubPage::Commit { repository, id, format }) => {
                format!("commit {repository} {id} {format:?}")
            }
            Some(GithubPage::File { repository, segments }) => {
                format!("file {repository} {}", segments.join("|"))
            }
            Some(GithubPage::Folder { repository, segments }) => {
                format!("folder {repository} {}", segments.join("|"))
            }
            Some(GithubPage::Repository { repository }) => format!("repository {repository}"),
            Some(GithubPage::Releases { repository }) => format!("releases {repository}"),
            Some(GithubPage::Release { repository, tag }) => format!("release {repository} {tag}"),
            Some(GithubPage::Gist { id }) => format!("gist {id}"),
        }
    }

    #[test]
    fn pages_of_the_api_are_recognized() {
        for (url, expected) in [
            ("https://github.com/Rust-lang/Cargo", "repository Rust-lang/Cargo"),
            ("http://www.github.com/a/b.git/", "repository a/b"),
            ("https://github.com/a/b/issues/12#issuecomment-3", "issue a/b 12"),
            ("https://github.com/a/b/issues/12?x=y", "issue a/b 12"),
            ("https://github.com/a/b/pull/7", "pull a/b 7"),
            ("https://github.com/a/b/pull/7/files", "changes a/b 7 Diff"),
            ("https://github.com/a/b/pull/7.diff", "changes a/b 7 Diff"),
            ("https://github.com/a/b/pull/7.patch", "changes a/b 7 Patch"),
            ("https://github.com/a/b/commit/0123abcd", "commit a/b 0123abcd Diff"),
            ("https://github.com/a/b/commit/0123abcd.patch", "commit a/b 0123abcd Patch"),
            ("https://github.com/a/b/blob/main/src/lib.rs#L3", "file a/b main|src|lib.rs"),
            ("https://github.com/a/b/raw/main/a%20b%2Fc.txt", "file a/b main|a b/c.txt"),
            ("https://raw.githubusercontent.com/a/b/main/x.md", "file a/b main|x.md"),
            ("https://raw.githubusercontent.com/a/b/refs/heads/main/x", "file a/b main|x"),
            ("https://github.com/a/b/tree/feature/x/src", "folder a/b feature|x|src"),
            ("https://github.com/a/b/releases", "releases a/b"),
            ("https://github.com/a/b/releases/tag/v1.0", "release a/b v1.0"),
            ("https://github.com/a/b/releases/tag/pkg/v1.0", "release a/b pkg/v1.0"),
            ("https://gist.github.com/user/0123456789abcdef", "gist 0123456789abcdef"),
            ("https://gist.github.com/0123456789abcdef", "gist 0123456789abcdef"),
        ] {
            assert_eq!(routed(url), expected, "{url}");
        }
    }

    #[test]
    fn other_urls_are_not_recognized() {
        for url in [
            "https://github.com/",
            "https://github.com/a",
            "https://github.com/topics/rust",
            "https://github.com/Orgs/rust-lang",
            "https://github.com/a/b/issues",
            "https://github.com/a/b/issues/0",
            "https://github.com/a/b/issues/12345678901",
            "https://github.com/a/b/issues/1x",
            "https://github.com/a/b/discussions/1",
            "https://github.com/a/b/actions",
            "https://github.com/a/b/wiki/Home",
            "https://github.com/a/b/blob/main",
            "https://github.com/a/b/commit/xyz",
            "https://github.com/a/b/pull/1/commits",
            "https://github.com/a%2Fb/c",
            "https://github.com/a/%2e%2e%2fb",
            "https://github.com/a/b/blob/main/%2e%2e%2f..%00",
            "https://github.com//a/b",
            "https://github.com/a/b/blob/main//x",
            "https://github.com:8443/a/b",
            "https://user@github.com/a/b",
            "https://github.com.example.com/a/b",
            "https://api.github.com/repos/a/b",
            "https://gist.github.com/user",
            "ftp://github.com/a/b",
        ] {
            assert_eq!(routed(url), "-", "{url}");
        }
        let long = format!("https://github.com/a/b/blob/main/{}", "x".repeat(MAX_URL));
        assert_eq!(routed(&long), "-");
        let deep = format!("https://github.com/a/b/tree/{}", "x/".repeat(MAX_SEGMENTS));
        assert_eq!(routed(&deep), "-");
    }
}
