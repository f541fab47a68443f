//! Tools for the web.

mod content;
mod html;
