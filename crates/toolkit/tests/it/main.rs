//! The file tools against real directories, real processes and attempts to get out.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod bash;
mod confinement;
mod edit;
mod guide;
mod list;
mod read;
mod search;
mod workshop;
mod write;
