//! The tool calls of the fleet, as its bus carries them.

mod board;
mod content;
mod handlers;
mod rates;
mod view;

pub(crate) use self::{
    board::{CallBoard, Viewing},
    handlers::{content, list, parse_filter, read},
};

// The descriptions of the routes, for the OpenAPI document.
pub(crate) use self::handlers::{__path_content, __path_list, __path_read};
