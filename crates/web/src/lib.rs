//! Tools for the web.
