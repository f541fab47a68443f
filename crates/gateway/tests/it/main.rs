//! Tests of the gateway over HTTP, with an agent on the in-memory bus.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod a2a;
mod a2a_client;
mod a2a_list;
mod a2a_push;
mod a2a_push_bounds;
mod a2a_push_targets;
mod a2a_rest;
mod a2a_sdk;
mod a2a_tasks;
mod api_approvals;
mod api_conversations;
mod api_description;
mod api_harness;
mod api_inputs;
mod api_operations;
mod audit_outcomes;
mod audit_records;
mod callers;
mod connections;
mod failed_sends;
mod fleet;
mod guard_table;
mod handler;
mod hook;
mod http;
mod login;
mod mcp;
mod open_webui;
mod openai;
mod openai_approvals;
mod openai_conversations;
mod openai_repetition;
mod openai_responses;
mod remote_agents;
mod remote_harness;
mod sends;
mod tasks;
mod tokens;
mod tool_calls;
