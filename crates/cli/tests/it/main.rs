//! The `rockbot` command without a broker or an API key.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod approve;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod chat_terminal;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod contexts;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod demo_web;
#[cfg(test)]
mod dlq;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod home;
#[cfg(test)]
mod init;
#[cfg(test)]
mod input;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_add;
#[cfg(test)]
mod mcp_import;
#[cfg(test)]
mod mcp_servers;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod pseudo_terminal;
#[cfg(test)]
mod release;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod script;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tools;
