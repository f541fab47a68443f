//! Requests of tools, before they are sent.

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use url::Url;

/// Builds the request of one call from its arguments. Implemented by configured tools and by the
/// operations of OpenAPI documents.
pub trait BuildRequest: Send + Sync + 'static {
    /// Builds the request. Arguments cannot choose the origin, the number of path segments or a header's
    /// name.
    ///
    /// # Errors
    /// When the arguments match the schema but cannot be sent.
    fn request(&self, arguments: &Map<String, Value>) -> Result<RequestParts, InvalidArguments>;
}

/// Arguments that cannot be sent. The message is for a model: it describes the problem and the expected
/// form, and never repeats the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidArguments(pub String);

/// A request that is ready to be sent, and can be sent more than once.
///
/// `Debug` shows method, origin, header names and the size of the body: path, query, header values and
/// body may contain secrets.
#[derive(Clone)]
pub struct RequestParts {
    /// Method.
    pub method: Method,
    /// Absolute URL with path and query, without user information and fragment.
    pub url: Url,
    /// Headers without `Host`, `Content-Type` and those of the connection. Values that come from the
    /// configuration are marked as sensitive.
    pub headers: HeaderMap,
    /// Body, with its content type.
    pub body: RequestBody,
    /// OAuth client whose access token is sent as `Authorization: Bearer`. Default: none.
    pub credentials: Option<Arc<ClientCredentials>>,
}

/// Body of a request.
#[derive(Clone, PartialEq, Eq)]
pub enum RequestBody {
    /// No body and no `Content-Type`.
    Empty,
    /// An encoded body.
    Bytes {
        /// `Content-Type`.
        content_type: HeaderValue,
        /// Content. Bounded by the template and by the arguments, which have at most 1 MiB before encoding.
        bytes: Vec<u8>,
    },
    /// `multipart/form-data`. The boundary is chosen when the request is sent.
    Multipart(Vec<Part>),
}

/// One part of a multipart body.
#[derive(Clone, PartialEq, Eq)]
pub struct Part {
    /// Name of the field.
    pub name: String,
    /// File name, for a part that is a file.
    pub file_name: Option<String>,
    /// `Content-Type` of the part. Default: none.
    pub content_type: Option<String>,
    /// Content.
    pub bytes: Vec<u8>,
}

/// OAuth 2.0 client whose tokens are obtained with the grant `client_credentials`.
#[derive(Debug, Clone)]
pub struct ClientCredentials {
    /// Token endpoint.
    pub token_url: Url,
    /// Client id.
    pub client_id: String,
    /// Client secret.
    pub client_secret: SecretString,
    /// Requested scopes. When empty, none are requested and the server decides.
    pub scopes: Vec<String>,
}

impl RequestBody {
    /// Returns the size of the content in bytes, without the framing of a multipart body.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes { bytes, .. } => bytes.len(),
            Self::Multipart(parts) => parts.iter().map(|part| part.bytes.len()).sum(),
        }
    }

    /// Returns `true` if there is no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for RequestParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.keys().collect();
        f.debug_struct("RequestParts")
            .field("method", &self.method)
            .field("origin", &self.url.origin().ascii_serialization())
            .field("headers", &headers)
            .field("body", &self.body)
            .field("credentials", &self.credentials.is_some())
            .finish()
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Empty => "Empty",
            Self::Bytes { .. } => "Bytes",
            Self::Multipart(_) => "Multipart",
        };
        f.debug_tuple(kind).field(&self.len()).finish()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("name", &self.name).field("bytes", &self.bytes.len()).finish()
    }
}

/// Secrets do not implement `PartialEq`; detecting changes of the configuration needs a comparison.
impl PartialEq for ClientCredentials {
    fn eq(&self, other: &Self) -> bool {
        self.token_url == other.token_url
            && self.client_id == other.client_id
            && self.client_secret.expose_secret() == other.client_secret.expose_secret()
            && self.scopes == other.scopes
    }
}
