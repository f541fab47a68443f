//! The `rockbot` command as a newcomer meets it: one process, no broker, no key.

#[cfg(test)]
mod approve;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod dlq;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod pseudo_terminal;
mod script;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod workshop;
