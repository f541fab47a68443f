//! REST tools against servers that fail in every way.

#[cfg(test)]
mod apis;
#[cfg(test)]
mod arguments;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod file;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod mock;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod server;
#[cfg(test)]
mod streams;
