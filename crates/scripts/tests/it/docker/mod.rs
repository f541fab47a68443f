//! Docker containers, on a real daemon.

mod basics;
mod fixture;
mod hostile;
mod termination;
