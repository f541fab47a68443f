//! Both ends of a tool call, on the in-memory bus.

#[cfg(test)]
mod addressing;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod catalog;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod load;
#[cfg(test)]
mod mcp_index;
#[cfg(test)]
mod mcp_manage;
#[cfg(test)]
mod mcp_stage;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod suspects;
