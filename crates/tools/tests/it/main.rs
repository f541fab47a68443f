//! Calls that run in one process.

#[cfg(test)]
mod names;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod profile;
#[cfg(test)]
mod small;
