//! Recipients of credentials: a document must not choose them.

use url::{Origin, Url};

use super::options::ImportOptions;

/// Maximum number of listed origins.
const MAX_ORIGINS: usize = 50;

impl ImportOptions {
    /// Checks that `credential_origins` has nothing but origins.
    ///
    /// # Errors
    /// A message for the operator.
    pub(super) fn check_credential_origins(&self) -> Result<(), String> {
        if self.credential_origins.len() > MAX_ORIGINS {
            return Err(format!("credentialOrigins: it has more than {MAX_ORIGINS} entries"));
        }
        for listed in &self.credential_origins {
            if listed_origin(listed).is_none() {
                return Err(
                    "credentialOrigins: each entry must have the form https://api.example.com, with a \
                     port where it is not the usual one, and nothing else"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// Checks that credentials may be sent to a URL: to the origin of the document, of `baseUrl`, or of
    /// `credentialOrigins`.
    ///
    /// # Errors
    /// Returns the origin that may not receive them.
    pub(super) fn check_recipient(&self, url: &Url) -> Result<(), String> {
        let origin = url.origin();
        let base = self.base_url.as_deref().and_then(|base| Url::parse(base).ok());
        let known = self.document_url.iter().chain(&base).map(Url::origin);
        let listed = self.credential_origins.iter().filter_map(|listed| listed_origin(listed));
        if known.chain(listed).any(|known| known == origin) {
            return Ok(());
        }
        Err(origin.ascii_serialization())
    }
}

/// Returns a listed origin; `None` if it is more or less than one.
fn listed_origin(text: &str) -> Option<Origin> {
    let url = Url::parse(text).ok()?;
    let is_origin = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none();
    is_origin.then(|| url.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(document: Option<&str>, base: Option<&str>, listed: &[&str]) -> ImportOptions {
        ImportOptions {
            document_url: document.map(|url| Url::parse(url).unwrap()),
            base_url: base.map(str::to_owned),
            credential_origins: listed.iter().map(|&origin| origin.to_owned()).collect(),
            ..ImportOptions::default()
        }
    }

    #[test]
    fn only_configured_origins_receive_credentials() {
        let url = Url::parse("https://api.example.com/v1").unwrap();
        for options in [
            options(Some("https://api.example.com/openapi.json"), None, &[]),
            options(None, Some("https://api.example.com/v2"), &[]),
            options(None, None, &["https://other.example.com", "https://API.example.com:443/"]),
        ] {
            assert_eq!(options.check_recipient(&url), Ok(()));
        }
        for options in [
            options(None, None, &[]),
            options(Some("http://api.example.com/openapi.json"), None, &[]),
            options(Some("https://example.com/"), Some("https://api.example.com:8443/"), &[]),
            options(None, None, &["https://example.com", "https://api.example.com.evil.test"]),
        ] {
            assert_eq!(options.check_recipient(&url), Err("https://api.example.com".to_owned()));
        }
    }

    #[test]
    fn listed_origins_are_nothing_but_origins() {
        assert_eq!(options(None, None, &["https://a.example", "http://b:81"]).check(), Ok(()));
        for listed in ["a.example", "https://a/b", "https://u@a", "https://a?b", "ftp://a", "*"] {
            let error = options(None, None, &[listed]).check().unwrap_err();
            assert!(error.contains("credentialOrigins"), "{error}");
        }
    }
}
