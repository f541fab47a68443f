//! Tools for the web.
//!
//! `web_browse` reads a page: it is fetched within the dial policy of `rockbot-egress`, its main content
//! becomes Markdown, and what people do not see is dropped. Everything that a page contains is hostile: its
//! size, its shape and its text.
//!
//! - [`WebSection`]: the configuration;
//! - [`WebProvider`]: the tools;
//! - [`PageRouter`], [`PdfReader`], [`Extractor`]: ports to parts that can be exchanged.

mod browse;
mod chunking;
mod content;
mod fetch;
mod frame;
mod html;
mod page_router;
#[cfg(feature = "pdf")]
pub mod pdf;
mod pdf_reader;
mod provider;
mod reader;
mod section;
mod telemetry;

pub use self::{
    html::{Extract, Extractor, HtmlPage, Part, TwoCandidates},
    page_router::{PageRouter, RoutedPage},
    pdf_reader::{PdfError, PdfReader},
    provider::{WebOptions, WebProvider},
    reader::STACK_BYTES,
    section::{RobotsMode, WebSection},
};
