//! Limits of calls, and the policy that refers to them.
//!
//! A limit is an object that counts by itself; a [`CallPolicy`] points to those that hold for a call,
//! and the [layers](crate::layers) ask them.

pub mod breaker;
pub mod fleet;
mod policy;
pub mod queue;
pub mod rate;

pub use self::policy::{CallPolicy, Tenant};
