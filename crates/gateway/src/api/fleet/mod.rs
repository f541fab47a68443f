//! Queues, handlers and tools of the fleet, and findings about them.

mod reader;
mod tools;
mod view;

pub(crate) use self::{
    reader::{FleetReader, read},
    tools::{list_tools, read_tool},
    view::{FleetView, state_name},
};

// The descriptions of the routes, for the OpenAPI document.
pub(crate) use self::{
    reader::__path_read,
    tools::{__path_list_tools, __path_read_tool},
};
