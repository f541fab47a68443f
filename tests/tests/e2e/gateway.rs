//! The gateway process: its faces over two replicas, after kills and lost connections, and with clients of the OpenAI
//! API that others wrote.

mod api;
mod api_client;
mod cuts;
mod embedded;
mod harness;
mod helm_test;
mod kills;
mod openai_clients;
mod repetition;
mod resume;
mod traces;
