//! Scripts in containers, with a real daemon.

mod bed;
mod ends;
mod hostile;
mod ordinary;
