//! Workspace rules, enforced as tests.

#[cfg(test)]
mod workspace_rules;
