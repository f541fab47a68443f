//! The event stream: all topics of a viewer in one response.
//!
//! A viewer pulls: it keeps its position in what all viewers share, and reads from there when its connection
//! takes more. So a slow viewer costs nothing but what it misses, and no other viewer waits for it.

mod handler;
mod limits;
mod topics;
mod viewer;

pub(crate) use self::{
    handler::{__path_open, open},
    limits::StreamLimits,
};
