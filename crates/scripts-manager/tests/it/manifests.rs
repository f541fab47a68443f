//! What is applied to a cluster.
