//! End-to-end tests of the whole fleet live in `tests/`; this library is empty.
