//! Links to the next page of a list.

use http::{HeaderMap, header::LINK};
use url::Url;

/// Maximum length of a `Link` header that is read, in bytes.
const MAX_LINK_BYTES: usize = 8 * 1024;
/// Maximum length of the reported query, in bytes.
const MAX_QUERY_BYTES: usize = 512;

/// Returns the query parameters in which the next page of a list differs from the page at `url`, such as
/// `page=3`. Only for links to the same origin and path: others are not calls of the same tool.
pub(crate) fn next_page(headers: &HeaderMap, url: &Url) -> Option<String> {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    let links = links.filter(|link| link.len() <= MAX_LINK_BYTES);
    let next = links.flat_map(|link| link.split(',')).find_map(target_of_next)?;
    let next = url.join(next).ok()?;
    if next.origin() != url.origin() || next.path() != url.path() {
        return None;
    }
    let current: Vec<_> = url.query_pairs().collect();
    let changed = next.query_pairs().filter(|pair| !current.contains(pair));
    let changed: Vec<_> = changed.map(|(name, value)| format!("{name}={value}")).collect();
    let changed = changed.join("&");
    (!changed.is_empty() && changed.len() <= MAX_QUERY_BYTES).then_some(changed)
}

/// Returns the target of a link whose relation is `next`.
fn target_of_next(link: &str) -> Option<&str> {
    let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next =
        parameters.split(';').filter_map(|one| one.trim().split_once('=')).any(|(name, value)| {
            let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
            name.trim().eq_ignore_ascii_case("rel")
                && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
        });
    is_next.then_some(target)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_next_page_of_same_list_is_reported() {
        let url: Url = "https://api.example.com/items?page=2&state=open&key=k".parse().unwrap();
        let cases = [
            (
                "<https://api.example.com/items?page=3&state=open&key=k>; rel=\"next\"",
                Some("page=3"),
            ),
            (
                "</items?page=1>; rel=prev, </items?page=3&state=open>; rel=\"last next\"",
                Some("page=3"),
            ),
            ("<https://evil.example.com/items?page=3>; rel=next", None),
            ("</other?page=3>; rel=next", None),
            ("</items?page=3>; rel=last", None),
            ("items?page=3; rel=next", None),
        ];
        for (link, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(LINK, HeaderValue::from_static(link));
            assert_eq!(next_page(&headers, &url).as_deref(), expected, "{link}");
        }
    }
}
