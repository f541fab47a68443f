//! The wire format as golden files, and its tolerance of older and newer peers.

#[cfg(test)]
mod agent_task;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod forward;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tolerance;
#[cfg(test)]
mod worker_queues;
