//! The files of the page, which the program contains.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::face::{Access, Route};

/// A file of the page.
#[derive(Debug, Clone, Copy)]
struct Asset {
    path: &'static str,
    content: &'static [u8],
}

/// The files in the folder `assets`, in the order of their paths.
static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The file that is also served at `/`.
const INDEX: &str = "/index.html";

/// Returns a route for each file. Their content is public: the page signs in by itself.
pub(super) fn routes() -> Vec<Route> {
    routes_of(ASSETS)
}

fn routes_of(assets: &'static [Asset]) -> Vec<Route> {
    let mut routes = Vec::new();
    for asset in assets {
        let tag = asset.tag();
        let paths = [Some(asset.path), (asset.path == INDEX).then_some("/")];
        for path in paths.into_iter().flatten() {
            let tag = tag.clone();
            let serve = async move |headers: HeaderMap| asset.response(&tag, &headers);
            routes.push(Route::get(path, Access::Public, serve));
        }
    }
    routes
}

impl Asset {
    /// Returns the entity tag: a hash of the content.
    fn tag(&self) -> HeaderValue {
        let hash = URL_SAFE_NO_PAD.encode(&Sha256::digest(self.content)[..18]);
        // Base64url has no characters that a header cannot have.
        HeaderValue::try_from(format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""))
    }

    /// Returns the file, or 304 if the client has it. A browser asks each time, so that an update of the
    /// gateway is an update of the page.
    fn response(&self, tag: &HeaderValue, headers: &HeaderMap) -> Response {
        let known =
            headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        let mut known = known.flat_map(|tags| tags.split(',')).map(str::trim);
        let is_known =
            known.any(|known| known.strip_prefix("W/").unwrap_or(known).as_bytes() == tag);
        let common = [
            (header::ETAG, tag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        if is_known {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let kind = HeaderValue::from_static(content_type(self.path));
        (common, [(header::CONTENT_TYPE, kind)], self.content).into_response()
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "webmanifest" => "application/json",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    static PAGE: &[Asset] = &[
        Asset { path: "/app.js", content: b"let x;" },
        Asset { path: INDEX, content: b"<!doctype html>" },
    ];

    #[test]
    fn index_is_served_at_the_root_too() {
        let routes = routes_of(PAGE);
        let paths: Vec<_> = routes.iter().map(|route| route.path).collect();
        assert_eq!(paths, ["/app.js", "/index.html", "/"]);
        assert!(routes.iter().all(|route| route.access == Access::Public));
    }

    #[tokio::test]
    async fn known_file_is_not_sent_again() {
        let (asset, mut headers) = (PAGE[0], HeaderMap::new());
        let tag = asset.tag();
        let sent = asset.response(&tag, &headers);
        assert_eq!(sent.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert_eq!(sent.headers()[header::ETAG], tag);
        assert_eq!(to_bytes(sent.into_body(), 100).await.unwrap(), "let x;");
        headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(asset.response(&tag, &headers).status(), StatusCode::OK);
        headers.append(header::IF_NONE_MATCH, tag.clone());
        let known = asset.response(&tag, &headers);
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        assert!(to_bytes(known.into_body(), 100).await.unwrap().is_empty());
    }
}
