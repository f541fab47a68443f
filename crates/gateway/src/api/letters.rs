//! Dead letters: inspected, replayed and purged.

mod handlers;
mod reader;
mod view;

pub(crate) use self::{
    handlers::{list, list_queues, purge, read, replay},
    reader::LetterReader,
    view::LetterQueues,
};

// The descriptions of the routes, for the OpenAPI document.
pub(crate) use self::handlers::{
    __path_list, __path_list_queues, __path_purge, __path_read, __path_replay,
};
