//! REST tools against servers that fail in every way.

mod apis;
mod faults;
mod file;
mod fixture;
mod requests;
mod secrets;
mod server;
mod streams;
