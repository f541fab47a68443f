//! Tests of the file tools with real directories and processes, and attempts to escape the root.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod bash;
mod confinement;
mod edit;
mod guide;
mod list;
mod read;
mod sandbox;
mod search;
mod write;
