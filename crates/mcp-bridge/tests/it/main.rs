//! Bridges and servers of every kind.

mod bed;
mod faults;
mod lifecycle;
mod owners;
mod peers;
