//! Whole-fleet stories and house rules, in one test binary.

#[cfg(test)]
mod house_rules;
