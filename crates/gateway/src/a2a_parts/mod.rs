//! The key and the options of the face `a2a`.

mod push_options;
mod signing;

use std::{path::PathBuf, sync::Arc};

use rockbot_egress::EgressError;

pub(crate) use self::signing::CardSigner;
pub use self::{push_options::PushOptions, signing::SigningKeyError};
use crate::section::A2aSection;

/// The key and the options of the face `a2a`. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct A2aParts {
    /// Push notifications; `None` if they are off.
    pub push: Option<PushOptions>,
    pub(crate) signer: Option<Arc<CardSigner>>,
}

/// Why the face cannot start.
#[derive(Debug, thiserror::Error)]
pub enum A2aPartsError {
    /// Cards cannot be signed with the configured key.
    #[error("gateway.a2a.signing_key_file: {}: {error}", path.display())]
    SigningKey {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: SigningKeyError,
    },
    /// The targets of push notifications cannot be dialed.
    #[error("gateway.a2a.push: the trusted certificates of this system cannot be read: {0}")]
    Push(#[from] EgressError),
}

impl A2aParts {
    /// Reads the key and the certificates that the section needs. Reads files.
    ///
    /// # Errors
    /// When the key is missing or unusable, or the certificates cannot be read.
    pub fn load(section: &A2aSection) -> Result<Self, A2aPartsError> {
        let signer = match &section.signing_key_file {
            Some(path) => {
                let signer = CardSigner::read(path)
                    .map_err(|error| A2aPartsError::SigningKey { path: path.clone(), error })?;
                Some(Arc::new(signer))
            }
            None => None,
        };
        let push = section.push.enabled.then(|| PushOptions::new(section.push.dial_policy()));
        Ok(Self { push: push.transpose()?, signer })
    }

    /// Returns the id of the key that signs cards.
    #[must_use]
    pub fn signing_key_id(&self) -> Option<&str> {
        self.signer.as_deref().map(CardSigner::key_id)
    }
}
