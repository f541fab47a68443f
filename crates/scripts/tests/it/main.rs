//! Scripts, run in earnest.

mod docker;
