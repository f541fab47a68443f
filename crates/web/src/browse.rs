//! The tool `web_browse`.

mod page_error;

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::future::BoxFuture;
use rockbot_egress::EgressError;
use rockbot_tools::{
    CallPolicy, ContentBlock, Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration,
    ToolResult, ToolSource,
    chunk::ChunkHint,
    images::{image_block, max_image_bytes},
    parse_arguments,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::debug;
use url::Url;

use self::page_error::PageError;
use crate::{
    chunking::Chunking,
    content::{ContentKind, PageText, Source, convert, decode},
    fetch::{
        FetchError, Fetched, Fetcher, PageResponse,
        page_url::{self, top_level_domain},
    },
    frame::framed,
    html::Extractor,
    options::WebOptions,
    page_router::RouteFailure,
    pdf_reader::PdfReader,
    reader::PageReader,
    section::{RobotsMode, WebSection},
    telemetry::{Outcome, record_page},
};

/// Name of the tool.
pub(crate) const NAME: &str = "web_browse";
/// Time limit for fetching a page.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a call: fetching, and the text of the page.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
/// Largest image, in bytes: in base64 it fits into a result with the default limit of a handler.
const MAX_IMAGE_BYTES: usize = max_image_bytes(1024 * 1024 - 4096);
/// Time for which a page is cached.
const CACHE_TTL: Duration = Duration::from_secs(5 * 60);

/// Reads a page.
pub(crate) struct WebBrowse {
    registration: ToolRegistration,
    fetcher: Fetcher,
    reader: PageReader,
    pdf: Option<Arc<dyn PdfReader>>,
    extractor: Arc<dyn Extractor>,
    chunking: Chunking,
    max_markdown_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    url: String,
    #[serde(default)]
    raw: bool,
}

/// A page that was read.
struct ReadPage {
    url: Url,
    text: PageText,
    details: Map<String, Value>,
    /// A later call may read more.
    is_provisional: bool,
}

/// The content of a URL.
enum Found {
    Page(ReadPage),
    /// An image.
    Image {
        url: Url,
        image: ContentBlock,
        details: Map<String, Value>,
    },
}

impl ReadPage {
    /// Returns the page, or an error if it has no text.
    fn non_empty(self) -> Result<Found, PageError> {
        match self.text.markdown.is_empty() {
            true => Err(PageError::Empty { notes: self.text.notes }),
            false => Ok(Found::Page(self)),
        }
    }
}

impl WebBrowse {
    pub(crate) fn new(section: &WebSection, options: WebOptions) -> Result<Self, EgressError> {
        let WebOptions { router, pdf, extractor, .. } = options;
        let respects_robots = section.robots == RobotsMode::Respect;
        let policy = section.dial_policy();
        Ok(Self {
            registration: registration(),
            fetcher: Fetcher::new(policy, respects_robots, router, section.max_body_bytes)?,
            reader: PageReader::default(),
            pdf,
            extractor,
            chunking: section.chunking(),
            max_markdown_bytes: section.max_markdown_bytes,
        })
    }

    async fn browse(&self, url: &Url, whole: bool, deadline: Instant) -> Result<Found, PageError> {
        let fetched = self.fetcher.fetch(url.clone(), deadline.min(Instant::now() + FETCH_TIMEOUT));
        match fetched.await? {
            Fetched::Routed { page, url } => {
                let source = self.source(ContentKind::Markdown, page.markdown, url.clone(), whole);
                let mut text = self.converted(source, deadline).await?;
                (text.title, text.part) = (page.title, "routed");
                ReadPage { url, text, details: Map::new(), is_provisional: false }.non_empty()
            }
            Fetched::Response { response, replaced: None } => {
                self.read(response, whole, deadline).await
            }
            Fetched::Response { response, replaced: Some(replaced) } => {
                self.read_instead(response, replaced, whole, deadline).await
            }
        }
    }

    /// Reads the page that a router failed to read: the model gets the failure in a note, or instead of a
    /// page that cannot be read either.
    async fn read_instead(
        &self,
        response: PageResponse,
        replaced: RouteFailure,
        whole: bool,
        deadline: Instant,
    ) -> Result<Found, PageError> {
        match self.read(response, whole, deadline).await {
            Ok(Found::Page(mut page)) => {
                page.text.notes.insert(0, replaced.note);
                page.is_provisional = true;
                Ok(Found::Page(page))
            }
            Ok(image @ Found::Image { .. }) => Ok(image),
            Err(error) => {
                debug!(%error, "page that replaces a routed one was not read");
                Err(FetchError::Routed(replaced.failure).into())
            }
        }
    }

    async fn read(
        &self,
        response: PageResponse,
        whole: bool,
        deadline: Instant,
    ) -> Result<Found, PageError> {
        if !(200..300).contains(&response.status) {
            return Err(PageError::Status {
                status: response.status,
                retry_after: response.retry_after,
            });
        }
        let PageResponse { url, media_type, charset, body, .. } = response;
        let bytes = body.len();
        let kind = ContentKind::of(&media_type, &body);
        let mut details = Map::new();
        details.insert("contentType".to_owned(), json!(media_type));
        details.insert("bytes".to_owned(), json!(bytes));
        let (markdown, note) = match kind {
            ContentKind::Binary(what) => {
                let image = (bytes <= MAX_IMAGE_BYTES).then(|| image_block(&body)).flatten();
                return match image {
                    Some(image) => Ok(Found::Image { url, image, details }),
                    None => Err(PageError::Binary { what, media_type, bytes }),
                };
            }
            ContentKind::Pdf => (self.pdf_text(body, deadline).await?, None),
            _ => {
                let decoded = decode(&body, charset.as_deref(), top_level_domain(&url));
                details.insert("charset".to_owned(), json!(decoded.encoding));
                let note = decoded.is_lossy.then(|| {
                    format!(
                        "some characters are not valid in {} and were replaced",
                        decoded.encoding
                    )
                });
                (decoded.text, note)
            }
        };
        let kind = if kind == ContentKind::Pdf { ContentKind::Markdown } else { kind };
        let source = self.source(kind, markdown, url.clone(), whole);
        let mut text = self.converted(source, deadline).await?;
        text.notes.extend(note);
        ReadPage { url, text, details, is_provisional: false }.non_empty()
    }

    async fn pdf_text(&self, bytes: Vec<u8>, deadline: Instant) -> Result<String, PageError> {
        let length = bytes.len();
        let reader = self.pdf.as_ref().ok_or(PageError::NoPdfReader { bytes: length })?;
        Ok(reader.read(bytes, deadline).await?)
    }

    fn source(&self, kind: ContentKind, text: String, url: Url, whole: bool) -> Source {
        let (max_bytes, extractor) = (self.max_markdown_bytes, self.extractor.clone());
        Source { kind, text, url, whole, max_bytes, extractor }
    }

    async fn converted(&self, source: Source, deadline: Instant) -> Result<PageText, PageError> {
        Ok(self.reader.run(deadline, move || convert(source)).await?)
    }

    /// Returns the result for the model and its details for programs.
    fn result(&self, requested: &Url, raw: bool, page: ReadPage) -> ToolResult {
        let ReadPage { url, text, mut details, is_provisional } = page;
        details.insert("url".to_owned(), json!(url.as_str()));
        details.insert("title".to_owned(), json!(text.title));
        details.insert("part".to_owned(), json!(text.part));
        details.insert("notes".to_owned(), json!(text.notes));
        let hint = self.chunking.hint(requested, raw, &text.title);
        details.insert(ChunkHint::KEY.to_owned(), hint.to_value());
        let shown = framed(&text.title, &url, &text.notes, &text.markdown);
        let result = ToolResult { is_provisional, ..ToolResult::text(shown) };
        result.with_details(Value::Object(details))
    }
}

/// Returns an image with its address.
fn image_result(url: &Url, image: ContentBlock, mut details: Map<String, Value>) -> ToolResult {
    details.insert("url".to_owned(), json!(url.as_str()));
    let text = ContentBlock::Text { text: format!("The picture at {url}:") };
    let result = ToolResult { content: vec![text, image], ..ToolResult::default() };
    result.with_details(Value::Object(details))
}

impl Tool for WebBrowse {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let Arguments { url, raw } = parse_arguments(arguments)?;
            let url = page_url::parse(&url)?;
            let started = StdInstant::now();
            let read = self.browse(&url, raw, context.deadline).await;
            record_page(read.as_ref().map_or_else(PageError::outcome, |_| Outcome::Ok), started);
            match read {
                Ok(Found::Page(page)) => Ok(self.result(&url, raw, page)),
                Ok(Found::Image { url, image, details }) => Ok(image_result(&url, image, details)),
                Err(error) => error.into_result(FETCH_TIMEOUT),
            }
        })
    }

    fn policy(&self) -> Option<CallPolicy> {
        Some(CallPolicy { cache: Some(CACHE_TTL.into()), ..CallPolicy::default() })
    }
}

fn registration() -> ToolRegistration {
    let timeout_ms = u64::try_from(CALL_TIMEOUT.as_millis()).ok();
    ToolRegistration {
        name: NAME.to_owned(),
        label: Some("Read web page".to_owned()),
        description: "Read a web page, feed, text file or JSON document by its URL, or look at a picture. Returns \
            the main content as Markdown with absolute links. A long page is stored in chunks in working \
            memory. JavaScript is not run."
            .to_owned(),
        tool_description: None,
        parameters: json!({
            "type": "object",
            "properties": {
                "url": {
                    "type": "string",
                    "maxLength": 2000,
                    "description": "Absolute http or https URL. A fragment selects the heading that the \
                        chunks of a long page are listed from.",
                },
                "raw": {
                    "type": "boolean",
                    "description": "Return all visible text, with menus and footers. Default false.",
                },
            },
            "required": ["url"],
            "additionalProperties": false,
        }),
        source: ToolSource::Web,
        hints: ToolHints { read_only: true, destructive: false, idempotent: true, open_world: true },
        timeout_ms,
    }
}
