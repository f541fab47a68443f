//! Package requirements of scripts: names, extras and versions of PEP 508.
//!
//! A requirement is passed to an installer, which would also accept options, files and URLs in its
//! place. Every character is checked, so that only names, extras and versions are accepted.

use std::fmt;

/// The most packages that one script may request.
pub const MAX_REQUIREMENTS: usize = 20;
/// The longest requirement, in bytes.
const MAX_REQUIREMENT_BYTES: usize = 200;
const OPERATORS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

/// Normalized requirements, sorted and without duplicates: equal requirements have equal texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Requirements(Vec<String>);

/// An error in a requested package; for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequirement {
    /// It is not a name with extras and versions.
    #[error(
        "{text:?} is not a package: write a name as in `requests`, `requests==2.32.3` or \
         `httpx[http2]>=0.27,<1`; URLs, paths, options and markers are not accepted"
    )]
    Malformed {
        /// The request, cut to 80 characters.
        text: String,
    },
    /// Too many packages.
    #[error("{count} packages are requested; at most {MAX_REQUIREMENTS} are allowed")]
    TooMany {
        /// Their number.
        count: usize,
    },
}

impl Requirements {
    /// Parses the packages that a model requests.
    ///
    /// # Errors
    /// When one of them is not a name with extras and versions, or there are more than
    /// [`MAX_REQUIREMENTS`].
    pub fn parse<T: AsRef<str>>(packages: &[T]) -> Result<Self, InvalidRequirement> {
        if packages.len() > MAX_REQUIREMENTS {
            return Err(InvalidRequirement::TooMany { count: packages.len() });
        }
        let parsed: Result<Vec<_>, _> = packages
            .iter()
            .map(|package| {
                let text = package.as_ref();
                requirement(text).ok_or_else(|| InvalidRequirement::Malformed {
                    text: text.chars().take(80).collect(),
                })
            })
            .collect();
        let mut packages = parsed?;
        packages.sort();
        packages.dedup();
        Ok(Self(packages))
    }

    /// Returns whether no packages are requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the requirements in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Normalizes `name[extra,…]operator version,…`: no spaces, names as in PEP 503.
fn requirement(text: &str) -> Option<String> {
    if text.len() > MAX_REQUIREMENT_BYTES || !text.is_ascii() {
        return None;
    }
    let text = text.trim_matches(' ');
    let end = text.find(|c: char| !is_name_char(c)).unwrap_or(text.len());
    let (package, rest) = text.split_at(end);
    let mut normalized = normalize_name(package)?;
    let mut rest = rest.trim_start_matches(' ');
    if let Some(inside) = rest.strip_prefix('[') {
        let (extras, after) = inside.split_once(']')?;
        let extras: Option<Vec<_>> =
            extras.split(',').map(|extra| normalize_name(extra.trim_matches(' '))).collect();
        let mut extras = extras?;
        extras.sort();
        normalized += &format!("[{}]", extras.join(","));
        rest = after.trim_start_matches(' ');
    }
    if rest.is_empty() {
        return Some(normalized);
    }
    let versions: Option<Vec<_>> =
        rest.split(',').map(|one| version(one.trim_matches(' '))).collect();
    let mut versions = versions?;
    versions.sort();
    Some(normalized + &versions.join(","))
}

/// Normalizes a name or an extra: lower case, runs of `-`, `_` and `.` as one `-`.
fn normalize_name(name: &str) -> Option<String> {
    let (first, last) = (name.chars().next()?, name.chars().next_back()?);
    let ends = first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric();
    if !ends || !name.chars().all(is_name_char) {
        return None;
    }
    let mut normalized = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normalized.ends_with('-') => {}
            '-' | '_' | '.' => normalized.push('-'),
            c => normalized.push(c.to_ascii_lowercase()),
        }
    }
    Some(normalized)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn version(text: &str) -> Option<String> {
    let operator = OPERATORS.into_iter().find(|operator| text.starts_with(operator))?;
    let number = text[operator.len()..].trim_start_matches(' ');
    let any_below = if matches!(operator, "==" | "!=") { number.strip_suffix(".*") } else { None };
    is_version(any_below.unwrap_or(number)).then(|| format!("{operator}{number}"))
}

/// Returns whether the text is a version as in PEP 440, without a local part. Anything else could name
/// a file: an installer reads a requirement that ends like an archive (`x==1.tar`) as a path.
fn is_version(text: &str) -> bool {
    let after_epoch = text.split_once('!').map(|(epoch, rest)| (after_number(epoch), rest));
    let text = match after_epoch {
        None => text,
        Some((Some(""), rest)) => rest,
        Some(_) => return false,
    };
    let Some(mut rest) = after_number(text) else { return false };
    while let Some(after) = rest.strip_prefix('.').and_then(after_number) {
        rest = after;
    }
    // Each of the three at most once, in this order.
    for kinds in [&["a", "b", "rc"][..], &[".post"], &[".dev"]] {
        let after = |kind: &&str| rest.strip_prefix(*kind).and_then(after_number);
        rest = kinds.iter().find_map(after).unwrap_or(rest);
    }
    rest.is_empty()
}

/// Returns the text after a leading number, or `None` without one.
fn after_number(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_requirements_have_one_spelling() {
        let given = [
            "Requests == 2.32.3",
            "zope.interface",
            "httpx [http2, cli] <1,>=0.27",
            "requests==2.32.3",
        ];
        let packages = Requirements::parse(&given).unwrap();
        let normalized: Vec<_> = packages.iter().collect();
        assert_eq!(normalized, ["httpx[cli,http2]<1,>=0.27", "requests==2.32.3", "zope-interface"]);
    }

    #[test]
    fn versions_follow_pep_440() {
        for good in [
            "==1",
            "==1.2.3",
            "==1!2.0",
            "~=1.4.2",
            "==2.0rc1",
            "==1.0a2.dev3",
            ">=1.0.post1,<2",
            "==1.2.*",
            "!=1.*",
            "===1.0",
        ] {
            assert!(Requirements::parse(&[format!("x{good}")]).is_ok(), "{good} was rejected");
        }
        for bad in [
            "==1.tar",
            "==1.zip",
            "==1.tar.gz",
            "==1.whl",
            "==1.0+1.tar",
            "==1.0+cpu",
            ">=1.*",
            "==1..2",
            "==1.",
            "==1a",
            "==!1",
            "==x!1",
            "==1.post",
            "==1-1",
            "==1_2",
            "==1.*.2",
            "==1.0.dev1.post1",
            "==١",
        ] {
            assert!(Requirements::parse(&[format!("x{bad}")]).is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn options_urls_and_paths_are_rejected() {
        for bad in [
            "",
            " ",
            "x; curl evil",
            "x;python_version<'3'",
            "--index-url=http://evil",
            "-r requirements.txt",
            "-e .",
            "git+https://evil/x",
            "x @ https://evil/x.whl",
            "https://evil/x.whl",
            "./x",
            "../x",
            "/etc/passwd",
            "x==1 --hash=sha256:0",
            "x\n--index-url=http://evil",
            "x\ty",
            "x y",
            "x[",
            "x[]",
            "x[a",
            "x==",
            "x==-1",
            "x=1",
            "x==1,",
            "x$(id)",
            "x`id`",
            "x|id",
            "х",
            "_x",
            "x-",
            &"x".repeat(300),
        ] {
            assert!(Requirements::parse(&[bad]).is_err(), "{bad:?} was accepted");
        }
        assert!(Requirements::parse(&["x"; MAX_REQUIREMENTS + 1]).is_err());
    }
}
