//! Working memory on every kind of store that a test can open by itself.

#[cfg(test)]
mod working_memory;
