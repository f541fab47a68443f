//! The tokens that are valid now.

use std::{collections::HashMap, io, net::IpAddr, path::PathBuf, sync::Arc};

use parking_lot::RwLock;
use rockbot_service::watch::{FileError, FileWatch};
use tracing::{error, info, warn};

use super::{
    secret::{SecretHash, hash},
    tokens::{MAX_FILE_BYTES, Token, TokenFile},
};
use crate::identity::{Credential, Identity, TOKEN_PREFIX};

/// Longest token that is looked up, in bytes.
const MAX_TOKEN_BYTES: usize = 256;

/// The tokens that are valid now, by the hash of their secret.
#[derive(Debug, Default)]
pub(super) struct TokenTable(RwLock<HashMap<SecretHash, Token>>);

impl TokenTable {
    /// Replaces all tokens.
    pub(super) fn replace(&self, file: TokenFile) {
        *self.0.write() = file.by_hash().collect();
    }

    /// Returns the identity of a token.
    pub(super) fn identify(&self, token: &str, from: Option<IpAddr>) -> Option<Identity> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let tokens = self.0.read();
        let token = tokens.get(&hash(token))?;
        Some(Identity {
            subject: Arc::from(format!("{TOKEN_PREFIX}{}", token.name)),
            credential: Credential::Token,
            rights: token.rights.clone(),
            faces: token.faces.clone(),
            agents: token.agents.clone(),
            tools: token.tools.clone(),
            requests_per_minute: token.requests_per_minute,
            address: from,
        })
    }

    /// Replaces the tokens whenever the file changes. Without the file, no token is valid; while its content is
    /// invalid, the last valid content applies.
    pub(super) async fn watch(self: Arc<Self>, path: PathBuf) {
        let mut watch = FileWatch::new(path, MAX_FILE_BYTES);
        loop {
            match watch.changed().await {
                Ok(content) => match TokenFile::parse(&content) {
                    Ok(file) => {
                        info!(tokens = file.tokens.len(), "tokens read");
                        self.replace(file);
                    }
                    Err(problem) => {
                        error!(problem, "file of tokens is invalid; the last one applies")
                    }
                },
                Err(FileError::Io(cause)) if cause.kind() == io::ErrorKind::NotFound => {
                    warn!("file of tokens is gone; no token is valid");
                    self.replace(TokenFile::default());
                }
                Err(cause) => error!(%cause, "file of tokens not read; the last one applies"),
            }
        }
    }
}
