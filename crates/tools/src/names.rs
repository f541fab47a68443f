//! Tool names that every model provider accepts.

use std::collections::{BTreeMap, BTreeSet};

use rockbot_contracts::topology::stable_hash;

/// Default maximum length of a tool name. Providers differ; none accepts more than [`MAX_NAME_BYTES`].
pub const DEFAULT_NAME_BYTES: usize = 64;

/// Maximum length of a tool name that any provider accepts.
pub const MAX_NAME_BYTES: usize = 128;

const HASH_BYTES: usize = 9;

/// Converts a name to letters, digits, `_` and `-`, at most `limit` bytes (16 to 128).
///
/// Other characters become `_`; case is kept. A name that is too long is truncated and ends in a hash
/// of the whole name, so that two long names stay distinct.
#[must_use]
pub fn sanitize(name: &str, limit: usize) -> String {
    let limit = limit.clamp(16, MAX_NAME_BYTES);
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let clean: String = name.chars().map(allowed).collect();
    if clean.is_empty() || clean.len() > limit { with_hash(&clean, name, limit) } else { clean }
}

/// Returns a replacement for `clean`, derived from `name`, when another tool already has it. The
/// result is the same on every machine.
#[must_use]
pub fn with_hash(clean: &str, name: &str, limit: usize) -> String {
    let keep = clean.len().min(limit.clamp(16, MAX_NAME_BYTES) - HASH_BYTES);
    let hash = u32::try_from(stable_hash(name.as_bytes()) >> 32).unwrap_or_default();
    format!("{}_{hash:08x}", &clean[..keep])
}

/// Returns the name of a tool of an MCP server: `server__tool`.
#[must_use]
pub fn namespaced(namespace: &str, tool: &str, limit: usize) -> String {
    sanitize(&format!("{namespace}__{tool}"), limit)
}

/// Assigns each name a unique sanitized name of at most `limit` bytes (16 to 128).
///
/// A name that needs no sanitizing is kept. Others that collide get a hash of their whole name. The
/// result depends on the set of names and not on their order.
pub fn assign(wanted: impl IntoIterator<Item = String>, limit: usize) -> BTreeMap<String, String> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in wanted {
        groups.entry(sanitize(&name, limit)).or_default().insert(name);
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let (mut assigned, mut colliding) = (BTreeMap::new(), Vec::new());
    for (clean, names) in groups {
        let is_unique = names.len() == 1;
        for name in names {
            if is_unique || name == clean {
                taken.insert(clean.clone());
                assigned.insert(name, clean.clone());
            } else {
                colliding.push((clean.clone(), name));
            }
        }
    }
    for (clean, name) in colliding {
        let mut seed = name.clone();
        let mut unique = with_hash(&clean, &seed, limit);
        while !taken.insert(unique.clone()) {
            seed.push('\n');
            unique = with_hash(&clean, &seed, limit);
        }
        assigned.insert(name, unique);
    }
    assigned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sanitize_keeps_case_and_replaces_other_characters() {
        assert_eq!(sanitize("Read.File (v2)", 64), "Read_File__v2_");
        assert_eq!(namespaced("GitHub", "create_issue", 64), "GitHub__create_issue");
    }

    #[test]
    fn long_names_stay_distinct() {
        let (one, two) = ("x".repeat(100) + "1", "x".repeat(100) + "2");
        assert_ne!(sanitize(&one, 64), sanitize(&two, 64));
        assert_eq!(sanitize(&one, 64).len(), 64);
    }

    proptest! {
        #[test]
        fn sanitize_returns_valid_name(name in ".{0,200}", limit in 0_usize..300) {
            let clean = sanitize(&name, limit);
            prop_assert!(!clean.is_empty() && clean.len() <= limit.clamp(16, MAX_NAME_BYTES));
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!(clean.chars().all(allowed));
            let limit = limit.max(16);
            prop_assert_eq!(sanitize(&clean, limit), clean, "sanitizing is idempotent");
        }
    }
}
