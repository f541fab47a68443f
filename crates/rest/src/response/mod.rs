//! Responses as results for a model.

mod content;
mod json;
mod next_page;

pub(crate) use self::{content::ReceivedResponse, next_page::next_page};
