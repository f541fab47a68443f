//! Routers and readers of PDF documents.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_tools::ToolFailure;
use rockbot_web::{PageRouter, PdfError, PdfReader, RouteOutcome, RoutedPage, WebOptions};
use tokio::time::Instant;

use crate::server::{Server, browse_with, ok, page_text, reply};

/// Routes addresses whose path contains `issues`.
struct Issues;

type Routed<'a> = BoxFuture<'a, Result<RouteOutcome, ToolFailure>>;

impl PageRouter for Issues {
    fn route<'a>(&'a self, url: &url::Url, _: Instant) -> Option<Routed<'a>> {
        let number = url.path().strip_prefix("/issues/")?.to_owned();
        Some(Box::pin(async move {
            match number.as_str() {
                "7" => {
                    let page = RoutedPage {
                        title: "Issue 7".to_owned(),
                        markdown: "# Issue\u{200b} 7".to_owned(),
                    };
                    Ok(RouteOutcome::Page(page))
                }
                "8" => Ok(RouteOutcome::Unknown),
                _ => Err(ToolFailure::failed("no such issue")),
            }
        }))
    }
}

#[tokio::test]
async fn router_replaces_request() {
    let server = Server::start([
        ("/hop", reply(302, &[("Location", "/issues/7")], "")),
        ("/issues/8", ok("text/plain", "the page itself")),
    ])
    .await;
    let options = || WebOptions { router: Some(Arc::new(Issues)), ..WebOptions::default() };
    let browse = |path| {
        let (section, url) = (server.section(), server.url(path));
        async move { browse_with(&section, options(), &url).await }
    };
    for path in ["/issues/7", "/hop"] {
        let result = browse(path).await.unwrap();
        assert!(result.to_text().starts_with("Page: Issue 7\n"), "{result:?}");
        assert_eq!(page_text(&result), "# Issue 7");
    }
    assert_eq!(page_text(&browse("/issues/8").await.unwrap()), "the page itself");
    assert_eq!(browse("/issues/9").await.unwrap_err().to_string(), "no such issue");
    assert_eq!(server.requests().len(), 2);
}

/// Reads every document but an empty one.
struct Documents;

impl PdfReader for Documents {
    fn read<'a>(&'a self, bytes: Vec<u8>, _: Instant) -> BoxFuture<'a, Result<String, PdfError>> {
        Box::pin(async move {
            match bytes.len() {
                8 => Err(PdfError::Unreadable { reason: "it is encrypted".to_owned() }),
                _ => Ok("--- page 1 ---\n\nText".to_owned()),
            }
        })
    }
}

#[tokio::test]
async fn pdf_is_read_by_its_reader() {
    let server = Server::start([
        ("/a.pdf", ok("application/octet-stream", b"%PDF-1.7\nx")),
        ("/b.pdf", ok("application/pdf", b"%PDF-1.7")),
    ])
    .await;
    let options = || WebOptions { pdf: Some(Arc::new(Documents)), ..WebOptions::default() };
    let result = browse_with(&server.section(), options(), &server.url("/a.pdf")).await.unwrap();
    assert_eq!(page_text(&result), "--- page 1 ---\n\nText");
    let result = browse_with(&server.section(), options(), &server.url("/b.pdf")).await.unwrap();
    assert_eq!(result.to_text(), "This PDF document cannot be read: it is encrypted.");
}
