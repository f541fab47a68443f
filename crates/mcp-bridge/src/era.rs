//! Protocol eras.
//!
//! Up to 2025-11-25, a session begins with a handshake. From 2026-07-28 on, there is no handshake, and
//! every request stands alone.

use rmcp::{
    model::{ClientCapabilities, ProtocolVersion},
    service::ClientLifecycleMode,
};

use crate::{
    config::{Protocol, ServerConfig},
    elicitation,
    session::Session,
};

/// The protocol era of a server, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Not known yet; to be detected.
    Unknown,
    /// Sessions with a handshake: up to 2025-11-25.
    Handshake,
    /// No handshake: from 2026-07-28 on.
    Stateless,
}

impl Era {
    pub(crate) fn from_session(session: &Session) -> Self {
        if session.has_handshake() { Self::Handshake } else { Self::Stateless }
    }

    /// Returns the configured era.
    pub(crate) fn configured(config: &ServerConfig) -> Self {
        match config.protocol {
            None => Self::Unknown,
            Some(Protocol::Handshake) => Self::Handshake,
            Some(Protocol::Stateless) => Self::Stateless,
        }
    }

    /// Returns the capabilities that a session declares. `declares_input` is set if a user can respond to
    /// requests for input.
    pub(crate) fn capabilities(self, declares_input: bool) -> ClientCapabilities {
        if self == Self::Stateless {
            // Each call declares whether its user can respond.
            return ClientCapabilities::builder().enable_tasks().build();
        }
        let mut capabilities = ClientCapabilities::default();
        if declares_input {
            elicitation::declare(&mut capabilities);
        }
        capabilities
    }

    /// Returns how rmcp opens a session of this era. The probe has detected it before.
    pub(crate) fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Unknown | Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        }
    }
}
