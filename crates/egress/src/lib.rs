//! HTTP client for addresses that others choose.
