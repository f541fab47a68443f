//! The gateway process, with clients of the OpenAI API that others wrote.

mod api;
mod embedded;
mod harness;
mod helm_test;
mod openai_clients;
mod repetition;
mod traces;
