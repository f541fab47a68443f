//! Tests of calls within one process.

#[cfg(test)]
mod counting_tool;
#[cfg(test)]
mod names;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod profile;
