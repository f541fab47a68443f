//! Conversations of people with agents.

mod entry;
mod event;
mod export;
mod history;
mod hub;
mod joined_text;
mod key_locks;
mod list;
mod messages;
mod open_turns;
mod read;
mod records;
mod share;
mod snapshot;
mod turns;

pub(crate) use self::{
    entry::ConversationView,
    event::{ConversationEvent, EventBody},
    export::export,
    hub::{Events, Hub, Missing, Position},
    list::{create, list, remove, rename},
    messages::{answer_input, cancel, decide, send},
    read::{events, read, read_shared},
    records::{Owner, Record, Records},
    share::{share, unshare},
    turns::{Conversation, Turns},
};

// The descriptions of the routes, for the OpenAPI document.
pub(crate) use self::{
    export::__path_export,
    list::{__path_create, __path_list, __path_remove, __path_rename},
    messages::{__path_answer_input, __path_cancel, __path_decide, __path_send},
    read::{__path_events, __path_read, __path_read_shared},
    share::{__path_share, __path_unshare},
};
