//! Scripts on this machine, friendly and hostile.

mod bed;
mod ordinary;
