//! Tests of the fleet as an MCP server, on the in-memory bus with real handlers and clients.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod direct_calls;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod large_results;
#[cfg(test)]
mod many_tools;
#[cfg(test)]
mod raw_http;
#[cfg(test)]
mod repetition;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod third_party;
