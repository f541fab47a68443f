//! Ids that depend on other ids alone, so that a repeated operation has the same.

use sha2::{Digest, Sha256};

/// Returns the first `chars` hexadecimal digits, up to 64, of a hash of `parts`.
pub(crate) fn derived_id(parts: &[&str], chars: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_depends_on_the_division_into_parts() {
        assert_eq!(derived_id(&["ab", "c"], 12), derived_id(&["ab", "c"], 12));
        assert_ne!(derived_id(&["ab", "c"], 12), derived_id(&["a", "bc"], 12));
        assert_eq!(derived_id(&[], 64).len(), 64);
    }
}
