//! End-to-end tests of the fleet: real processes, a real broker, a real model server.
//!
//! `cargo xtask test` provides the services.

/// The allocator of the binaries: the soak test measures a caller inside this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(test)]
mod admin_port;
#[cfg(test)]
mod agent_settings;
#[cfg(test)]
mod agent_tasks;
#[cfg(test)]
mod agent_tools;
#[cfg(test)]
mod agents;
#[cfg(test)]
mod announced_tool;
#[cfg(test)]
mod approval_time;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod binaries;
#[cfg(test)]
mod broker_outage;
#[cfg(test)]
mod broker_users;
#[cfg(test)]
mod call_logs;
#[cfg(test)]
mod caller;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod catalog_refreshes;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod clock_differences;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod console;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod crash_points;
#[cfg(test)]
mod dead_letters;
#[cfg(test)]
mod disconnects;
#[cfg(test)]
mod documented_output;
#[cfg(test)]
mod executed;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod handler_crashes;
#[cfg(test)]
mod held_calls;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod hostile_agent;
#[cfg(test)]
mod http;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod journal_file;
#[cfg(test)]
mod journal_outage;
#[cfg(test)]
mod key_isolation;
#[cfg(test)]
mod large_outputs;
#[cfg(test)]
mod late_broker;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod local_model;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_chat;
#[cfg(test)]
mod mcp_definitions;
#[cfg(test)]
mod mcp_login;
#[cfg(test)]
mod mcp_one_shot;
#[cfg(test)]
mod mcp_programs;
#[cfg(test)]
mod mcp_remote;
#[cfg(test)]
mod mcp_results;
#[cfg(test)]
mod mcp_server;
#[cfg(test)]
mod mcp_settings;
#[cfg(test)]
mod model_audio;
#[cfg(test)]
mod model_images;
#[cfg(test)]
mod model_server;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod oversized_messages;
#[cfg(test)]
mod package_index;
#[cfg(test)]
mod pool_changes;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod process;
#[cfg(test)]
mod quarantine;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod rolling_restart;
#[cfg(test)]
mod scripted_server;
#[cfg(test)]
mod services;
#[cfg(test)]
mod site;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod split_agents;
#[cfg(test)]
mod stdio_server;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod terminal_text;
#[cfg(test)]
mod unconsumed_queue;
#[cfg(test)]
mod up;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod web;
#[cfg(test)]
mod workers;
