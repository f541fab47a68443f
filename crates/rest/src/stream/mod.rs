//! Responses that are streams of messages.

mod collector;
mod config;
mod decoder;
mod read;
mod updates;

pub(crate) use self::{
    config::StreamConfig,
    read::{is_stream, read},
    updates::Updates,
};
