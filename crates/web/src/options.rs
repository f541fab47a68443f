//! Parts of the web tools that the configuration does not describe.

use std::sync::Arc;

use rockbot_tools::Tool;

use crate::{
    html::{Extractor, TwoCandidates},
    page_router::PageRouter,
    pdf_reader::PdfReader,
};

/// Parts of the web tools that the section does not describe.
#[derive(Clone)]
pub struct WebOptions {
    /// Reads pages of sites that offer something better than HTML. Default: none.
    pub router: Option<Arc<dyn PageRouter>>,
    /// Reads PDF documents. Default: none; they are then refused.
    pub pdf: Option<Arc<dyn PdfReader>>,
    /// Finds the main content of HTML. Default: [`TwoCandidates`].
    pub extractor: Arc<dyn Extractor>,
    /// Further tools of the family. Default: none.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self { router: None, pdf: None, extractor: Arc::new(TwoCandidates), tools: Vec::new() }
    }
}
