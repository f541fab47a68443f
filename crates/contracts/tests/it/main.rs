//! The wire as files: a change to one of them is the alarm that the wire changed. And what is within
//! what, in traces.

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tolerance;
