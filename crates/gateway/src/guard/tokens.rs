//! Bearer tokens of programs: named, hashed, and limited to faces, agents, tools and a rate.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rockbot_service::watch::{FileError, read_bounded};
use serde::{Deserialize, Serialize};

use super::secret::{NoRandomness, SecretHash, generate, hash};
use crate::identity::{FaceName, NamePatterns, Right};

/// Largest file of tokens, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of tokens in a file.
const MAX_TOKENS: usize = 1024;
/// Longest name of a token, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Beginning of every token, so that scanners for leaked secrets recognize one.
const PREFIX: &str = "rbgw_";

/// A file of tokens that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: FileError,
    },
    /// The file cannot be written.
    #[error("{path}: cannot write it: {source}; check the folder and its permissions")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content is invalid.
    #[error("{path}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A token cannot be created.
    #[error("{0}")]
    Refused(String),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Name of the program; 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// SHA-256 of the secret, in base64url.
    pub sha256: String,
    /// Time of creation, in RFC 3339.
    #[serde(default)]
    pub created: String,
    /// The faces that it may use.
    pub faces: BTreeSet<FaceName>,
    /// Its rights.
    #[serde(default)]
    pub rights: BTreeSet<Right>,
    /// The agents that it may use.
    #[serde(default)]
    pub agents: NamePatterns,
    /// The tools that it may call directly.
    #[serde(default)]
    pub tools: NamePatterns,
    /// Requests per minute. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
}

impl Token {
    /// Creates a token for the faces, without rights, agents and tools, and returns it with its secret.
    ///
    /// # Errors
    /// When the name is invalid, no face is given, or the system has no random numbers.
    pub fn generate(name: &str, faces: BTreeSet<FaceName>) -> Result<(Self, String), TokenError> {
        let secret = format!("{PREFIX}{}", generate::<32>()?);
        let token = Self {
            name: name.to_owned(),
            sha256: URL_SAFE_NO_PAD.encode(hash(&secret)),
            created: jiff::Timestamp::now().to_string(),
            faces,
            rights: BTreeSet::new(),
            agents: NamePatterns::default(),
            tools: NamePatterns::default(),
            requests_per_minute: None,
        };
        match token.problem() {
            None => Ok((token, secret)),
            Some(problem) => Err(TokenError::Refused(problem)),
        }
    }

    fn hash(&self) -> Option<SecretHash> {
        URL_SAFE_NO_PAD.decode(&self.sha256).ok()?.try_into().ok()
    }

    fn problem(&self) -> Option<String> {
        let Self { name, faces, agents, tools, requests_per_minute, .. } = self;
        let is_name_byte =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name_byte) {
            return Some(format!(
                "{name:?} is no name of a token: use 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` and `-`"
            ));
        }
        if faces.is_empty() {
            return Some(format!("token {name}: name at least one face"));
        }
        if [agents, tools].into_iter().any(|patterns| patterns.iter().count() > NamePatterns::MAX) {
            return Some(format!("token {name}: more than {} patterns", NamePatterns::MAX));
        }
        if *requests_per_minute == Some(0) {
            return Some(format!("token {name}: requests_per_minute must be at least 1"));
        }
        self.hash().is_none().then(|| format!("token {name}: sha256 is no SHA-256 in base64url"))
    }
}

/// The tokens of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenFile {
    /// The tokens.
    #[serde(default)]
    pub tokens: Vec<Token>,
}

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let content = read_bounded(path, MAX_FILE_BYTES)
            .map_err(|source| TokenError::Read { path: path.to_owned(), source })?;
        Self::parse(&content)
            .map_err(|reason| TokenError::Invalid { path: path.to_owned(), reason })
    }

    /// Reads a file, or returns no tokens if it does not exist.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn read_if_present(path: &Path) -> Result<Self, TokenError> {
        match Self::read(path) {
            Err(TokenError::Read { source: FileError::Io(error), .. })
                if error.kind() == io::ErrorKind::NotFound =>
            {
                Ok(Self::default())
            }
            read => read,
        }
    }

    /// Parses the content of a file.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is no UTF-8".to_owned())?;
        let file: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if file.tokens.len() > MAX_TOKENS {
            return Err(format!("more than {MAX_TOKENS} tokens; revoke some"));
        }
        let mut names = BTreeSet::new();
        for token in &file.tokens {
            if let Some(problem) = token.problem() {
                return Err(problem);
            }
            if !names.insert(&token.name) {
                return Err(format!("two tokens have the name {}; revoke it", token.name));
            }
        }
        Ok(file)
    }

    /// Adds a token.
    ///
    /// # Errors
    /// When a token has its name, or there are too many.
    pub fn add(&mut self, token: Token) -> Result<(), TokenError> {
        if let Some(problem) = token.problem() {
            return Err(TokenError::Refused(problem));
        }
        if self.tokens.iter().any(|known| known.name == token.name) {
            let problem = format!("a token has the name {}; revoke it first", token.name);
            return Err(TokenError::Refused(problem));
        }
        if self.tokens.len() >= MAX_TOKENS {
            return Err(TokenError::Refused(format!("{MAX_TOKENS} tokens exist; revoke some")));
        }
        self.tokens.push(token);
        Ok(())
    }

    /// Removes the token of this name. Returns whether there was one.
    pub fn revoke(&mut self, name: &str) -> bool {
        let before = self.tokens.len();
        self.tokens.retain(|token| token.name != name);
        self.tokens.len() < before
    }

    /// Replaces a file in one step. Only its owner can read it.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let failed = |source| TokenError::Write { path: path.to_owned(), source };
        let text = toml::to_string_pretty(self).map_err(|error| failed(io::Error::other(error)))?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        let written = || -> io::Result<()> {
            let _ = fs::remove_file(&new);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        written().map_err(failed)
    }

    /// Returns each token with the hash of its secret.
    pub(super) fn by_hash(self) -> impl Iterator<Item = (SecretHash, Token)> {
        self.tokens.into_iter().filter_map(|token| Some((token.hash()?, token)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn openai() -> BTreeSet<FaceName> {
        BTreeSet::from([FaceName::Openai])
    }

    #[test]
    fn file_has_the_hash_and_not_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        assert_eq!(TokenFile::read_if_present(&path).unwrap(), TokenFile::default());
        let (token, secret) = Token::generate("open-webui", openai()).unwrap();
        let mut file = TokenFile::default();
        file.add(token.clone()).unwrap();
        file.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&secret) && !text.contains(&secret[PREFIX.len()..]), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = TokenFile::read(&path).unwrap();
        assert_eq!(read, file);
        assert_eq!(read.by_hash().next().unwrap(), (hash(&secret), token));
    }

    #[test]
    fn revoked_token_is_removed() {
        let mut file = TokenFile::default();
        file.add(Token::generate("a", openai()).unwrap().0).unwrap();
        assert!(file.add(Token::generate("a", openai()).unwrap().0).is_err(), "same name");
        assert!(file.revoke("a"));
        assert!(!file.revoke("a"));
        assert!(file.tokens.is_empty());
    }

    #[test]
    fn invalid_tokens_are_refused() {
        for name in ["", "a b", "a\n", &"x".repeat(65)] {
            assert!(Token::generate(name, openai()).is_err(), "{name:?}");
        }
        assert!(Token::generate("a", BTreeSet::new()).is_err());
        let valid = "[[tokens]]\nname = \"a\"\nfaces = [\"openai\"]\nsha256 = ";
        let hash = format!("\"{}\"\n", URL_SAFE_NO_PAD.encode([0; 32]));
        assert!(TokenFile::parse(format!("{valid}{hash}").as_bytes()).is_ok());
        for (text, problem) in [
            (format!("{valid}\"abc\""), "sha256"),
            (format!("{valid}{hash}{valid}{hash}"), "two tokens"),
            (format!("{valid}{hash}role = \"x\""), "unknown field"),
            (format!("{valid}{hash}requests_per_minute = 0"), "requests_per_minute"),
        ] {
            let error = TokenFile::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
