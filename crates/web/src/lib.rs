//! Tools for the web.
//!
//! `web_browse` reads a page: it is fetched within the dial policy of `rockbot-egress`, its main content
//! becomes Markdown, and what people do not see is dropped. Everything that a page contains is hostile: its
//! size, its shape and its text.
//!
//! - [`search`]: `web_search` and its providers; [`github`]: pages of GitHub through its API;
//! - `pdf`, with the feature of that name: PDF documents, read in a child process;
//! - [`WebSection`]: the configuration;
//! - [`WebProvider`]: the tools;
//! - [`PageRouter`], [`PdfReader`], [`Extractor`]: ports to parts that can be exchanged.

pub mod api;
mod browse;
mod chunking;
mod content;
mod fetch;
mod frame;
pub mod github;
mod html;
mod one_line;
mod options;
mod page_router;
#[cfg(feature = "pdf")]
pub mod pdf;
mod pdf_reader;
mod provider;
mod reader;
pub mod search;
mod secret;
mod section;
mod telemetry;

pub use self::{
    html::{Extract, Extractor, HtmlPage, Part, TwoCandidates},
    options::WebOptions,
    page_router::{PageRouter, RouteFailure, RouteOutcome, RoutedPage},
    pdf_reader::{PdfError, PdfReader},
    provider::{WebError, WebProvider},
    reader::STACK_BYTES,
    section::{RobotsMode, WebSection},
};
