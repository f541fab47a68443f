//! Tests of working memory on the stores that need no server.

#[cfg(test)]
mod working_memory;
