//! Security requirements of operations, and the credentials that satisfy them.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use url::Url;

use super::{
    encoding::{Target, encode},
    options::{ImportOptions, SchemeCredentials},
    parameters::Location,
    references::Resolver,
    servers,
};
use crate::request::ClientCredentials;

/// Maximum number of alternatives that are tried.
const MAX_ALTERNATIVES: usize = 50;

/// The credentials of an operation. `Debug` does not show them.
#[derive(Clone, Default)]
pub(super) struct Security {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Encoded names and values.
    pub(super) query: Vec<(String, SecretString)>,
    /// Encoded names and values.
    pub(super) cookies: Vec<(String, SecretString)>,
    pub(super) client: Option<Arc<ClientCredentials>>,
    /// Parameters that the credentials replace.
    pub(super) supplied: Vec<(Location, String)>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("supplied", &self.supplied).finish_non_exhaustive()
    }
}

impl Security {
    /// Returns the values that must not appear in results, in the form in which they are sent.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        let header = |value: &HeaderValue| value.to_str().ok().map(SecretString::from);
        let headers = self.headers.iter().filter_map(|(_, value)| header(value));
        let others = self.query.iter().chain(&self.cookies).map(|(_, value)| value.clone());
        headers.chain(others).collect()
    }

    /// Returns `true` if requests carry credentials.
    pub(super) fn has_credentials(&self) -> bool {
        let is_empty = self.headers.is_empty() && self.query.is_empty() && self.cookies.is_empty();
        !is_empty || self.client.is_some()
    }

    /// Returns whether it satisfies a parameter.
    pub(super) fn supplies(&self, location: Location, name: &str) -> bool {
        self.supplied.iter().any(|(place, supplied)| {
            let is_same = match location {
                Location::Header => supplied.eq_ignore_ascii_case(name),
                _ => supplied == name,
            };
            *place == location && is_same
        })
    }
}

/// Selects the first alternative whose schemes all have credentials, or none where that is permitted.
///
/// # Errors
/// Returns the reason why none can be used, and what to configure.
pub(super) fn security<'a>(
    resolver: &Resolver<'a>,
    root: &'a Value,
    operation: &'a Value,
    base: &Url,
    options: &ImportOptions,
) -> Result<Security, String> {
    let required = operation.get("security").or_else(|| root.get("security"));
    let alternatives = required.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let schemes = &root["components"]["securitySchemes"];
    let mut reason = None;
    let mut is_optional = alternatives.is_empty();
    for alternative in alternatives.iter().take(MAX_ALTERNATIVES) {
        let Some(alternative) = alternative.as_object() else { continue };
        if alternative.is_empty() {
            is_optional = true;
            continue;
        }
        match satisfy(resolver, schemes, alternative, base, options) {
            Ok(security) => return Ok(security),
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    if is_optional {
        return Ok(Security::default());
    }
    Err(reason.unwrap_or_else(|| "its security requirements are not readable".to_owned()))
}

fn satisfy<'a>(
    resolver: &Resolver<'a>,
    schemes: &'a Value,
    alternative: &Map<String, Value>,
    base: &Url,
    options: &ImportOptions,
) -> Result<Security, String> {
    let mut security = Security::default();
    for (name, scopes) in alternative {
        let shown: String = name.escape_debug().take(80).collect();
        let scheme = schemes.get(name).map(|scheme| resolver.follow(scheme));
        let Some(Ok(scheme)) = scheme else {
            return Err(format!("it needs the security scheme {shown}, which does not exist"));
        };
        let scopes = scopes.as_array().into_iter().flatten().filter_map(Value::as_str);
        let scopes: Vec<String> = scopes.map(ToOwned::to_owned).collect();
        let none = SchemeCredentials::default();
        let given = options.auth.get(name).unwrap_or(&none);
        let request = SchemeRequest { name: &shown, scheme, scopes, given, base, options };
        request.apply(&mut security)?;
    }
    Ok(security)
}

/// One security scheme to satisfy.
struct SchemeRequest<'a> {
    name: &'a str,
    scheme: &'a Value,
    scopes: Vec<String>,
    given: &'a SchemeCredentials,
    base: &'a Url,
    options: &'a ImportOptions,
}

impl SchemeRequest<'_> {
    fn apply(&self, security: &mut Security) -> Result<(), String> {
        match self.scheme["type"].as_str().unwrap_or_default() {
            "apiKey" => self.api_key(security),
            "http" => self.http(security),
            "oauth2" | "openIdConnect" => self.oauth(security),
            other => {
                let kind: String = other.escape_debug().take(40).collect();
                Err(format!("its security scheme {} of type {kind} is not supported", self.name))
            }
        }
    }

    fn missing(&self, fields: &str) -> String {
        format!("it needs credentials; set {fields} in auth.{}", self.name)
    }

    fn api_key(&self, security: &mut Security) -> Result<(), String> {
        let name = self.scheme["name"].as_str().unwrap_or_default();
        let place = self.scheme["in"].as_str().unwrap_or_default();
        let value = self.given.value.as_ref().or(self.given.token.as_ref());
        let location = match place {
            "header" => return self.header(security, name, value.cloned(), "value"),
            "query" => Location::Query,
            "cookie" => Location::Cookie,
            _ => return Err(format!("its security scheme {} has no valid place", self.name)),
        };
        let value = value.ok_or_else(|| self.missing("value"))?;
        let encoded = encode(value.expose_secret(), Target::Query, false);
        let pair = (encode(name, Target::Query, false), SecretString::from(encoded));
        match location {
            Location::Query => security.query.push(pair),
            _ => security.cookies.push(pair),
        }
        security.supplied.push((location, name.to_owned()));
        Ok(())
    }

    fn http(&self, security: &mut Security) -> Result<(), String> {
        let scheme = self.scheme["scheme"].as_str().unwrap_or_default().to_ascii_lowercase();
        match scheme.as_str() {
            "basic" => {
                let both = self.given.user.as_ref().zip(self.given.password.as_ref());
                let value = both.map(|(user, password)| {
                    let pair = format!("{user}:{}", password.expose_secret());
                    SecretString::from(format!("Basic {}", STANDARD.encode(pair)))
                });
                self.header(security, "Authorization", value, "user and password")
            }
            "bearer" => self.bearer(security, "token"),
            _ => Err(format!("the http scheme of {} is neither basic nor bearer", self.name)),
        }
    }

    fn bearer(&self, security: &mut Security, fields: &str) -> Result<(), String> {
        let token = self.given.token.as_ref().or(self.given.value.as_ref());
        let value = token.map(|token| format!("Bearer {}", token.expose_secret()));
        self.header(security, "Authorization", value.map(SecretString::from), fields)
    }

    fn oauth(&self, security: &mut Security) -> Result<(), String> {
        let client = self.given.client_id.as_ref().zip(self.given.client_secret.as_ref());
        let Some((client_id, client_secret)) = client else {
            return self.bearer(security, "clientId and clientSecret, or token,");
        };
        let flow = &self.scheme["flows"]["clientCredentials"];
        let token_url = self.given.token_url.as_deref().or_else(|| flow["tokenUrl"].as_str());
        let token_url = token_url.ok_or_else(|| self.missing("tokenUrl or token"))?;
        let token_url = servers::endpoint(token_url, Some(self.base), self.options)
            .map_err(|error| format!("its token URL {error}; set auth.{}.tokenUrl", self.name))?;
        if self.given.token_url.is_none() {
            self.options.check_recipient(&token_url).map_err(|origin| {
                let name = self.name;
                format!(
                    "the document wants the client secret at {origin}; if that is right, set \
                     auth.{name}.tokenUrl, or list this origin in credentialOrigins"
                )
            })?;
        }
        let scopes = if self.given.scopes.is_empty() {
            self.scopes.clone()
        } else {
            self.given.scopes.clone()
        };
        security.client = Some(Arc::new(ClientCredentials {
            token_url,
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            scopes,
        }));
        security.supplied.push((Location::Header, header::AUTHORIZATION.to_string()));
        Ok(())
    }

    /// Adds a header. Without a value it must be one that the entry adds to every request.
    fn header(
        &self,
        security: &mut Security,
        name: &str,
        value: Option<SecretString>,
        fields: &str,
    ) -> Result<(), String> {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("the header of its security scheme {} is not valid", self.name))?;
        security.supplied.push((Location::Header, name.to_string()));
        let Some(value) = value else {
            let is_configured = self.options.configured_headers.contains(name.as_str());
            return is_configured.then_some(()).ok_or_else(|| self.missing(fields));
        };
        let mut value = HeaderValue::from_str(value.expose_secret())
            .map_err(|_| format!("auth.{} is not a valid value of a header", self.name))?;
        value.set_sensitive(true);
        security.headers.push((name, value));
        Ok(())
    }
}
