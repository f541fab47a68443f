//! Addresses of pages.

use rockbot_tools::ToolFailure;
use url::Url;

/// Longest address, in bytes.
const MAX_URL_BYTES: usize = 2000;

/// Parses the address of a page.
///
/// # Errors
/// [`ToolFailure::InvalidArguments`] if it is not an absolute http or https URL, too long, or holds
/// credentials. Where it may lead is decided by the dial policy.
pub(crate) fn parse(text: &str) -> Result<Url, ToolFailure> {
    let text = text.trim();
    if text.len() > MAX_URL_BYTES {
        let message = format!("url has {} bytes; at most {MAX_URL_BYTES} are accepted", text.len());
        return Err(ToolFailure::invalid(message));
    }
    let url = Url::parse(text).map_err(|error| {
        ToolFailure::invalid(format!(
            "url is not valid: {error}; send an absolute one, as https://example.com/"
        ))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        let message =
            format!("url has the scheme '{}'; only http and https can be read", url.scheme());
        return Err(ToolFailure::invalid(message));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ToolFailure::invalid("url holds a user or a password; send it without them"));
    }
    Ok(url)
}

/// Returns the last label of a host name, which hints at the language of a page.
pub(crate) fn top_level_domain(url: &Url) -> Option<&str> {
    url.domain()?.trim_end_matches('.').rsplit('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_web_addresses_are_accepted() {
        for text in
            ["https://example.com/a?b#c", " http://bücher.example/ ", "https://[2001:db8::1]:8443/"]
        {
            assert!(parse(text).is_ok(), "{text}");
        }
        assert_eq!(
            parse("http://bücher.example/").unwrap().as_str(),
            "http://xn--bcher-kva.example/"
        );
        let long = format!("https://example.com/{}", "a".repeat(2000));
        for text in [
            "",
            "example.com",
            "/a",
            "file:///etc/passwd",
            "ftp://example.com/",
            "javascript:alert(1)",
            "https://user@example.com/",
            "https://:secret@example.com/",
            "https://",
            &long,
        ] {
            let failure = parse(text).unwrap_err();
            assert!(matches!(failure, ToolFailure::InvalidArguments { .. }), "{text}: {failure}");
        }
    }

    #[test]
    fn top_level_domain_is_last_label() {
        let of = |url: &str| top_level_domain(&Url::parse(url).unwrap()).map(str::to_owned);
        assert_eq!(of("https://www.example.co.jp./x"), Some("jp".to_owned()));
        assert_eq!(of("https://127.0.0.1/"), None);
    }
}
