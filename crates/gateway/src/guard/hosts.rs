//! Host names and origins of requests.

use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// The host names that requests may have, against DNS rebinding: a page of a foreign name that resolves to
/// this machine has the foreign name in its requests.
#[derive(Debug)]
pub(super) struct AllowedHosts {
    /// Lower-case names, with a port if only that one is accepted.
    hosts: Vec<(String, Option<u16>)>,
    /// The origin under which people reach the gateway.
    public_origin: String,
}

impl AllowedHosts {
    /// Accepts `hosts` and the host of `public_origin`. Invalid names are ignored; the validation of the
    /// configuration reports them.
    pub(super) fn new(hosts: &[String], public_origin: String) -> Self {
        let public = public_origin.parse::<Uri>().ok();
        let public = public.as_ref().and_then(Uri::authority).map(ToString::to_string);
        let names = hosts.iter().cloned().chain(public);
        let hosts = names.filter_map(|name| name.parse().ok()).map(|name| host_of(&name)).collect();
        Self { hosts, public_origin }
    }

    /// Returns the host of a request, if it is allowed.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
        let mut named = headers.get_all(header::HOST).iter();
        let host = named.next().and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let is_single = named.next().is_none();
        // The host of an absolute target wins over the header.
        let host = uri.authority().cloned().or(host)?;
        let (name, port) = host_of(&host);
        let is_known = |(known, only): &(String, Option<u16>)| {
            *known == name
                && only.is_none_or(|only| port.unwrap_or(default_port(&self.public_origin)) == only)
        };
        (is_single && !host.as_str().contains('@') && self.hosts.iter().any(is_known))
            .then_some(host)
    }

    /// Returns whether the `Origin` header names the gateway itself, as reached under `host`. `None` without
    /// the header.
    pub(super) fn is_same_origin(&self, headers: &HeaderMap, host: &Authority) -> Option<bool> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = origins.next()?;
        let origin = origin.to_str().ok().filter(|_| origins.next().is_none());
        Some(origin.is_some_and(|origin| {
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            origin.eq_ignore_ascii_case(&self.public_origin)
                || rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_str()))
        }))
    }
}

fn host_of(authority: &Authority) -> (String, Option<u16>) {
    (authority.host().to_ascii_lowercase(), authority.port_u16())
}

fn default_port(origin: &str) -> u16 {
    if origin.starts_with("https://") { 443 } else { 80 }
}

/// Returns whether a browser says that a page of another site, or another name of the same site, sent the
/// request.
pub(super) fn is_from_other_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn hosts() -> AllowedHosts {
        let names = ["localhost", "[::1]", "bot.internal:8420"].map(str::to_owned);
        AllowedHosts::new(&names, "https://Bot.Example".to_owned())
    }

    fn check(host: &'static str, expected: bool) {
        let found = hosts().check(&Uri::from_static("/"), &headers(&[("host", host)]));
        assert_eq!(found.is_some(), expected, "{host}");
    }

    #[test]
    fn only_allowed_hosts_are_accepted() {
        check("localhost", true);
        check("LocalHost:8420", true);
        check("[::1]:1", true);
        check("bot.example", true);
        check("bot.example:443", true);
        check("bot.internal:8420", true);
        check("bot.internal", false);
        check("bot.internal:8421", false);
        check("evil.example", false);
        check("localhost.evil.example", false);
        check("evil@localhost", false);
        check("", false);
        assert!(hosts().check(&Uri::from_static("/"), &HeaderMap::new()).is_none());
        let twice = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(hosts().check(&Uri::from_static("/"), &twice).is_none());
        let absolute = Uri::from_static("http://evil.example/");
        assert!(hosts().check(&absolute, &headers(&[("host", "localhost")])).is_none());
    }

    #[test]
    fn origin_is_that_of_the_request_or_the_public_one() {
        let host: Authority = "localhost:8420".parse().unwrap();
        for (origin, expected) in [
            ("http://localhost:8420", true),
            ("https://bot.example", true),
            ("http://localhost", false),
            ("http://localhost:8421", false),
            ("null", false),
            ("http://evil.example", false),
            ("https://bot.example.evil.example", false),
        ] {
            let found = hosts().is_same_origin(&headers(&[("origin", origin)]), &host);
            assert_eq!(found, Some(expected), "{origin}");
        }
        assert_eq!(hosts().is_same_origin(&HeaderMap::new(), &host), None);
    }
}
