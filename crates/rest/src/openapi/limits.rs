//! Limits of an import that depend on the memory of the process.

/// Maximum memory of a document, in bytes, however much the process has.
const MAX_MEMORY_BYTES: usize = 768 * 1024 * 1024;
/// Minimum memory of a document, in bytes: smaller processes cannot import large documents anyway.
const MIN_MEMORY_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of a document, in bytes, however much memory the process has.
const MAX_DOCUMENT_BYTES: usize = 32 * 1024 * 1024;
/// Memory of a value in YAML, in bytes, if it is in a small object.
const YAML_NODE_BYTES: usize = 256;
/// Maximum number of values in a document.
const MAX_NODES: usize = 4_000_000;

/// Limits of an import. Default: for a process with at least 3 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    memory: usize,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { memory: MAX_MEMORY_BYTES }
    }
}

impl ImportLimits {
    /// Returns the limits for a process with this memory, in bytes. A parsed document gets a quarter of
    /// it, 16 to 768 MiB; its operations, and the texts of waiting documents, need about half.
    #[must_use]
    pub fn for_memory(bytes: u64) -> Self {
        let quarter = usize::try_from(bytes / 4).unwrap_or(usize::MAX);
        Self { memory: quarter.clamp(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES) }
    }

    /// Returns the limits for this process.
    #[must_use]
    pub fn for_this_process() -> Self {
        rockbot_service::memory_limit().map_or_else(Self::default, Self::for_memory)
    }

    /// Returns the maximum size of a document, in bytes.
    #[must_use]
    pub fn document_bytes(self) -> usize {
        (self.memory / 8).min(MAX_DOCUMENT_BYTES)
    }

    /// Returns the maximum memory of a parsed document, in bytes.
    pub(super) fn memory(self) -> usize {
        self.memory
    }

    /// Returns the maximum number of values in a document.
    pub(super) fn nodes(self) -> usize {
        (self.memory / 32).min(MAX_NODES)
    }

    /// Returns the maximum number of values in a document in YAML.
    pub(super) fn yaml_nodes(self) -> usize {
        self.memory / YAML_NODE_BYTES
    }

    /// Returns the maximum memory of all copies of parts of a document, in bytes.
    pub(super) fn copied_bytes(self) -> usize {
        self.memory / 2
    }

    /// Returns the maximum size of all imported operations, in bytes of their schemas and names. In
    /// memory they need about eight times as much.
    pub(super) fn imported_bytes(self) -> usize {
        self.memory / 12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn document_gets_a_quarter_of_the_memory() {
        let limits = ImportLimits::for_memory(512 << 20);
        assert_eq!((limits.memory(), limits.document_bytes()), (128 * MIB, 16 * MIB));
        assert_eq!(ImportLimits::for_memory(1 << 20).memory(), 16 * MIB);
        assert_eq!(ImportLimits::for_memory(u64::MAX), ImportLimits::default());
        assert_eq!(ImportLimits::default().document_bytes(), 32 * MIB);
    }
}
