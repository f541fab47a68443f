//! The `rockbot` command as a newcomer meets it: one process, no broker, no key.

mod chat;
mod command_line;
mod configuration;
mod demo;
mod pseudo_terminal;
mod terminal;
mod tools;
mod workshop;
