//! The guarded client against servers on this machine.

mod bodies;
mod dialing;
mod redirects;
mod server;
