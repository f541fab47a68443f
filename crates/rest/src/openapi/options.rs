//! Settings of an import.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

/// Settings of an import: the part of an entry in `openApi` that selects operations and says how they
/// are called. References to variables are expanded already.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImportOptions {
    /// URL that replaces all servers of the document. Default: none.
    pub base_url: Option<String>,
    /// Origins that may receive credentials, such as `https://api.example.com`, in addition to those of the
    /// document and of `base_url`. Default: none.
    pub credential_origins: Vec<String>,
    /// Values of variables in the URLs of servers. Default: those of the document.
    pub server_variables: BTreeMap<String, String>,
    /// Prefix of the names of all tools: `rest__{prefix}_{operation}`. Default: none.
    pub tool_name_prefix: Option<String>,
    /// Operations to import. Default: all.
    pub include: OperationFilter,
    /// Operations to leave out, even if they are included. Default: none.
    pub exclude: OperationFilter,
    /// Imports deprecated operations as well. Default false.
    pub deprecated: bool,
    /// Credentials by the name of the security scheme.
    pub auth: BTreeMap<String, SchemeCredentials>,
    /// Changes of single operations by their id.
    pub overrides: BTreeMap<String, OperationOverride>,
    /// Patterns of the ids of operations that change nothing, whatever their method.
    pub read_only: Vec<String>,
    /// Patterns of the ids of operations that may change something, whatever their method.
    pub not_read_only: Vec<String>,
    /// URL of the document, which relative URLs of servers refer to. Its origin may receive credentials.
    /// Default: none.
    #[serde(skip)]
    pub document_url: Option<Url>,
    /// Permits servers without TLS. Default false.
    #[serde(skip)]
    pub allow_plain_http: bool,
    /// Names of headers, in lower case, that the entry adds to every request. A security scheme that
    /// only needs one of them is satisfied, and a parameter of that name is not offered.
    #[serde(skip)]
    pub configured_headers: BTreeSet<String>,
}

impl ImportOptions {
    /// Checks the settings that do not depend on the document.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_credential_origins()?;
        for (id, change) in &self.overrides {
            if change.read_only == Some(true) && change.idempotent == Some(false) {
                return Err(format!(
                    "overrides.{id}: readOnly is true and idempotent is false; a call that changes \
                     nothing can be repeated, so remove one of them"
                ));
            }
        }
        Ok(())
    }
}

/// Patterns of operations. All lists that are not empty must match; in each, one pattern suffices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OperationFilter {
    /// Patterns of operation ids. `*` matches any text.
    pub operations: Vec<String>,
    /// Names of tags.
    pub tags: Vec<String>,
    /// Patterns of paths as written in the document. `*` matches within a segment, `**` any text.
    pub paths: Vec<String>,
    /// Methods, in any case.
    pub methods: Vec<String>,
}

/// Credentials for one security scheme. The scheme decides which of the fields are used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SchemeCredentials {
    /// Value of an API key.
    pub value: Option<SecretString>,
    /// Bearer token.
    pub token: Option<SecretString>,
    /// User of basic authentication.
    pub user: Option<String>,
    /// Password of basic authentication.
    pub password: Option<SecretString>,
    /// OAuth client id, for the grant `client_credentials`.
    pub client_id: Option<String>,
    /// OAuth client secret.
    pub client_secret: Option<SecretString>,
    /// Requested OAuth scopes. Default: those that the operation requires.
    pub scopes: Vec<String>,
    /// OAuth token endpoint. Default: that of the document.
    pub token_url: Option<String>,
}

/// Changes of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OperationOverride {
    /// Leaves the operation out.
    pub hide: bool,
    /// Replaces the operation's part of the tool name.
    pub name: Option<String>,
    /// Replaces the description.
    pub description: Option<String>,
    /// Replaces the hint whether the operation changes nothing.
    pub read_only: Option<bool>,
    /// Replaces the hint whether repeating a call has no further effect.
    pub idempotent: Option<bool>,
}
