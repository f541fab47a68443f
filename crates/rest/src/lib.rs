//! Tools for REST APIs.
