//! Tests of an agent with scripted models and probe tools, in process and over the in-memory bus.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod approvals;
mod budgets;
mod context;
mod conversation_service;
mod guides;
mod handoffs;
mod harness;
mod inbox;
mod instructions;
mod internal_tools;
mod interrupted_fires;
mod interrupted_turns;
mod long_conversation;
mod mcp;
mod mcp_content;
mod memory;
mod metering;
mod model_capabilities;
mod pins;
mod profiles;
mod redeliveries;
mod remote_agent;
mod replica_harness;
mod replicas;
mod replies;
mod resumed_approvals;
mod resumed_calls;
mod schedule;
mod schedule_harness;
mod schedule_tools;
mod services;
mod sessions;
mod shared_inbox;
mod shutdown;
mod steering;
mod stored_conversations;
mod stored_harness;
mod subagents;
mod suspended_turns;
mod team;
mod tool_calls;
mod turns;
mod unprocessed_messages;
mod wisps;
