//! Tests of both ends of a tool call, on the in-memory bus.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod catalog;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod executed;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod journal_fixture;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod load;
#[cfg(test)]
mod lossy_bus;
#[cfg(test)]
mod mcp_fixture;
#[cfg(test)]
mod mcp_index;
#[cfg(test)]
mod mcp_input;
#[cfg(test)]
mod mcp_manage;
#[cfg(test)]
mod quarantine;
#[cfg(test)]
mod round_trip;
mod silent_store;
#[cfg(test)]
mod tool_resolver;
