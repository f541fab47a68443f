//! Configured APIs: their OpenAPI documents, and the tools that are created from them.

mod document;
mod import;
mod import_permits;
mod tools;

pub use self::{
    document::DocumentWatch,
    import::SkippedTool,
    tools::{ApiClient, ApiEntry, ApiTool, ApiTools},
};
pub(crate) use self::{
    document::{FileFingerprint, fingerprint},
    import::ImportedApi,
};
