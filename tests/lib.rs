//! Stories of the whole fleet live in `tests/`; this library is empty.
