//! Limits of calls, and the policy that refers to them.
//!
//! A limit is a shared object with its own counters. A [`CallPolicy`] refers to the limits of a call,
//! and the [layers](crate::layers) enforce them.

pub mod breaker;
pub mod fleet;
mod policy;
pub mod queue;
pub mod rate;

pub use self::policy::{CallPolicy, Tenant};
