//! Links and images of a page.

use dom_query::Document;
use url::Url;

/// Maximum length of a link, in bytes. Longer ones lose their target.
const MAX_LINK_BYTES: usize = 2000;

/// Makes links absolute. Links to scripts and embedded data lose their target, and images without a
/// description are removed.
pub(super) fn resolve(document: &Document, page: &Url) {
    let base = document.select_single("base[href]").attr("href");
    let base = base.and_then(|href| page.join(&href).ok()).filter(is_web);
    let base = base.as_ref().unwrap_or(page);
    for link in document.select("a[href]").nodes() {
        let href = link.attr("href").unwrap_or_default();
        match absolute(&href, base, page) {
            Some(url) => link.set_attr("href", &url),
            None => link.remove_attr("href"),
        }
        // Titles repeat the text or carry what nobody sees.
        link.remove_attr("title");
    }
    for image in document.select("img").nodes() {
        let has_description = image.attr("alt").is_some_and(|alt| !alt.trim().is_empty());
        let source = image.attr("src").and_then(|source| absolute(&source, base, page));
        match source.filter(|_| has_description) {
            Some(url) => {
                image.set_attr("src", &url);
                image.remove_attr("title");
            }
            None => image.remove_from_parent(),
        }
    }
}

fn absolute(href: &str, base: &Url, page: &Url) -> Option<String> {
    let href = href.trim();
    // A link within the page needs no address.
    if href.starts_with('#') && href.len() > 1 {
        return (href.len() <= MAX_LINK_BYTES).then(|| href.to_owned());
    }
    let url = base.join(href).ok()?;
    let is_contact = matches!(url.scheme(), "mailto" | "tel");
    let is_useful = is_web(&url) && url != *page || is_contact;
    (is_useful && url.as_str().len() <= MAX_LINK_BYTES).then(|| url.into())
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::parse::parse;

    #[test]
    fn links_are_absolute_or_lose_their_target() {
        let page = Url::parse("https://example.com/docs/a").unwrap();
        for (href, expected) in [
            ("b", Some("https://example.com/docs/b")),
            ("/c?x=1", Some("https://example.com/c?x=1")),
            ("//other.org/d", Some("https://other.org/d")),
            ("#part", Some("#part")),
            ("mailto:a@example.com", Some("mailto:a@example.com")),
            ("javascript:alert(1)", None),
            ("data:text/html,x", None),
            ("file:///etc/passwd", None),
            ("", None),
            ("http://[broken", None),
        ] {
            let document = parse(&format!("<a href='{href}'>text</a>")).unwrap();
            resolve(&document, &page);
            let link = document.select_single("a").attr("href");
            assert_eq!(link.as_deref(), expected, "{href}");
        }
    }

    #[test]
    fn base_applies_and_undescribed_images_are_removed() {
        let page = Url::parse("https://example.com/docs/a").unwrap();
        let html = "<base href='/other/'><a href=b>b</a><img src=c.png alt=chart><img src=d.png>\
                    <img alt=' ' src=e.png><img alt=inline src='data:image/png;base64,AAAA'>";
        let document = parse(html).unwrap();
        resolve(&document, &page);
        let link = document.select_single("a").attr("href").unwrap();
        assert_eq!(&*link, "https://example.com/other/b");
        let images = document.select("img");
        assert_eq!(images.length(), 1);
        assert_eq!(&*images.attr("src").unwrap(), "https://example.com/other/c.png");
    }
}
