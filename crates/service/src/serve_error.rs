//! The error with which a service ends.

/// Reason why a service stopped without a request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration is invalid in a way that is detected only at run time.
    #[error("{0}")]
    Configuration(String),
    /// A resource that the service needs is unavailable.
    #[error("{0}")]
    Unavailable(String),
}
